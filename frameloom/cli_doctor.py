"""`frameloom doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption, SetOption
from frameloom.console import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_USAGE,
    err,
    out,
    print_json,
    rest_idle_threads,
    run,
    settings_of,
)
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from frameloom.doctor import Plan
    from frameloom.doctor_finding import Finding

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red", "skipped": "dim"}


def doctor(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    overrides: SetOption = None,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Also compare clocks, on a topic that is made and removed, and start a "
            "transactional producer; else nothing is changed.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="S", help="Longest time of one check, seconds.")
    ] = 60.0,
    json: JsonOption = False,
) -> None:
    """Look at everything that a worker needs, say what is wrong and what mends it.

    Exit code 0: no problem (there may be warnings), 1: problems, 2: the settings cannot be read.
    """
    rest_idle_threads()
    from frameloom.doctor import Plan
    from frameloom.doctor_finding import State, worst

    try:
        settings = settings_of(config, bootstrap, overrides)
    except ConfigError as error:
        settings = error
    named = {"--config": config, "--bootstrap": bootstrap}
    options = " ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    findings = run(_collect(Plan(settings, options, write, timeout), quiet=json))
    state = worst(findings)
    if json:
        print_json({"state": state, "findings": findings}, indent=True)
    else:
        _print_table(findings)
    if isinstance(settings, ConfigError):
        raise typer.Exit(EXIT_USAGE)
    raise typer.Exit(EXIT_FAILED if state is State.PROBLEM else EXIT_DONE)


async def _collect(plan: Plan, *, quiet: bool) -> list[Finding]:
    from frameloom.doctor import diagnose

    if quiet:
        return [finding async for finding in diagnose(plan)]
    with err.status("looking …") as status:
        findings: list[Finding] = []
        async for finding in diagnose(plan):
            findings.append(finding)
            status.update(f"looked at {finding.check} …")
        return findings


def _print_table(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("check", "state", "what is so")
    for each in findings:
        said = Text(each.found)
        if each.remedy:
            said.append(f"\n→ {each.remedy}", style="bold")
        style = _STYLES[each.state.value]
        table.add_row(Text(each.check), Text(each.state.value, style=style), said)
    out.print(table)
    counts = {name: sum(each.state.value == name for each in findings) for name in _STYLES}
    out.print(", ".join(f"{count} {name}" for name, count in counts.items() if count))
