"""`frameloom audit`."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.console import (
    EXIT_DONE,
    EXIT_FAILED,
    err,
    out,
    print_json,
    printable,
    run,
    settings_of,
)
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from frameloom.audit import AuditPlan
    from frameloom.audit_report import FindingList, Report
    from schemas.settings import RouteSettings, Settings


class ThroughChoice(StrEnum):
    """`frameloom.audit.Through`, here so that `--help` need not import it."""

    COMMITTED = "committed"
    END = "end"


class IsolationChoice(StrEnum):
    """`frameloom.scan.Isolation`, likewise."""

    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


def audit(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    route: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A route of the settings; all of them without."),
    ] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="T", help="Instead of a route: input topic,")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="T", help="topic of the results,")
    ] = None,
    dead_letter: Annotated[
        str | None, typer.Option("--dead-letter", metavar="T", help="and of the dead letters.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="ID", help="The workers' group; the settings' without.")
    ] = None,
    begins: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="P:O", help="First offset of a partition, e.g. 0:100."),
    ] = None,
    ends: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="P:O", help="The offset after the last of a partition."),
    ] = None,
    through: Annotated[
        ThroughChoice,
        typer.Option(
            help="Where --to says nothing: `committed`, right at any time; `end`, right once the "
            "workers have caught up and stopped."
        ),
    ] = ThroughChoice.COMMITTED,
    isolation: Annotated[
        IsolationChoice,
        typer.Option(help="Whether answers of aborted transactions count (uncommitted)."),
    ] = IsolationChoice.COMMITTED,
    allow_duplicates: Annotated[
        bool,
        typer.Option(
            "--allow-duplicates", help="Report duplicates but do not fail: at least once has them."
        ),
    ] = False,
    max_listed: Annotated[
        int, typer.Option(min=0, help="Streams and findings of each kind that are listed.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """Prove that every record of the input was answered once and in order; fail if not."""
    from frameloom.audit import Through
    from frameloom.scan import Isolation

    settings = settings_of(config, bootstrap)
    topics = _topics(input_, output, dead_letter, route)
    plans = [
        replace(
            plan,
            begins=_offsets("--from", begins),
            ends=_offsets("--to", ends),
            through=Through(through),
            isolation=Isolation(isolation),
            max_listed=max_listed,
        )
        for plan in _plans(_with_group(settings, group), topics, route)
    ]
    if len(plans) > 1 and (begins or ends):
        raise ConfigError("--from and --to need one --route: offsets are a topic's own")
    reports = [_run(plan, show_progress=not json) for plan in plans]
    clean = all(report.clean(allow_duplicates=allow_duplicates) for report in reports)
    if json:
        print_json({"clean": clean, "audits": reports}, indent=True)
    else:
        for report in reports:
            _print(report, max_listed)
        err.print("[green]clean[/]" if clean else "[bold red]not clean[/]")
    raise typer.Exit(EXIT_DONE if clean else EXIT_FAILED)


def _topics(
    input_: str | None, output: str | None, dead_letter: str | None, route: list[str] | None
) -> RouteSettings | None:
    """The route made of the explicit topics, or None where none is given."""
    if input_ is None and output is None and dead_letter is None:
        return None
    if input_ is None or output is None or dead_letter is None:
        raise ConfigError("--input, --output and --dead-letter go together")
    if route:
        raise ConfigError("--route and --input exclude each other")
    from schemas.settings import RouteSettings

    return RouteSettings(input=input_, output=output, dead_letter=dead_letter)


def _with_group(settings: Settings, group: str | None) -> Settings:
    if group is None:
        return settings
    if not group:
        raise ConfigError("--group is empty")
    kafka = msgspec.structs.replace(settings.kafka, group_id=group)
    return msgspec.structs.replace(settings, kafka=kafka)


def _plans(
    settings: Settings, topics: RouteSettings | None, names: list[str] | None
) -> list[AuditPlan]:
    from frameloom.audit import AuditPlan
    from schemas.settings import Order

    known = {each.name: each for each in settings.routes}
    for name in names or []:
        if name not in known:
            raise ConfigError(f"--route {name}: known are {', '.join(known)}")
    routes = [topics] if topics else [known[name] for name in dict.fromkeys(names or known)]
    return [
        AuditPlan(
            kafka=settings.kafka,
            input=each.input,
            output=each.output,
            dead_letter=each.dead_letter,
            ordered=settings.delivery.order is Order.STREAM,
        )
        for each in routes
    ]


def _offsets(option: str, texts: list[str] | None) -> dict[int, int]:
    """`P:O` texts → partition → offset."""
    offsets: dict[int, int] = {}
    for text in texts or []:
        partition, _, offset = text.partition(":")
        if not (_is_number(partition) and _is_number(offset)):
            raise ConfigError(f"{option} {text}: it takes PARTITION:OFFSET, e.g. 0:100")
        if int(partition) in offsets:
            raise ConfigError(f"{option} names partition {partition} twice")
        offsets[int(partition)] = int(offset)
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _run(plan: AuditPlan, *, show_progress: bool) -> Report:
    from rich.progress import Progress, TaskID, TimeElapsedColumn

    from frameloom.audit import Progress as Step
    from frameloom.audit import audit as audit_

    columns = (*Progress.get_default_columns(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not show_progress) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(step: Step) -> None:
            if step.topic not in tasks:
                tasks[step.topic] = bar.add_task(step.topic, total=step.total)
            bar.update(tasks[step.topic], completed=step.done)

        return run(audit_(plan, tell))


def _print(report: Report, max_listed: int) -> None:
    from rich.table import Table
    from rich.text import Text

    spans = ", ".join(f"{p}: {s.begin}-{s.end}" for p, s in sorted(report.ranges.items()))
    out.print(f"{report.topic}  offsets {spans}", markup=False, soft_wrap=True)
    table = Table("stream", *(column.replace("_", " ") for column in _COLUMNS), show_footer=False)
    # Faulty streams first: with thousands of streams nobody looks for the one that matters.
    rows = sorted(report.streams.items(), key=lambda row: (-row[1].faults, row[0]))
    for stream, counts in rows[:max_listed]:
        table.add_row(
            Text(printable(stream)), *(str(getattr(counts, column)) for column in _COLUMNS)
        )
    table.add_section()
    table.add_row("all", *(str(getattr(report.total, column)) for column in _COLUMNS))
    out.print(table)
    if len(rows) > max_listed:
        out.print(f"... and {len(rows) - max_listed} more streams", markup=False)
    if report.segments:
        out.print(
            f"{report.segments} segments of video are whole, with {report.frames} frames answered",
            markup=False,
        )
    for name in ("lost", "duplicate", "out_of_order", "unknown", "unreadable"):
        _print_findings(name.replace("_", " "), getattr(report, name))
    ignored = {
        "answers beyond the first of their record": report.extra_answers,
        "answers to records outside the range": report.outside,
        "answers to records of other topics": report.foreign,
        "results whose order was not checked (too many streams)": report.order_unchecked,
        "answers whose segment was not checked (too many are not whole)": report.frames_unchecked,
    }
    for text, count in ignored.items():
        if count:
            out.print(f"{count} {text}", markup=False)
    for note in report.notes:
        err.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)


_COLUMNS = (
    "received", "ok", "expired", "skipped", "dead_lettered", "lost", "duplicate", "out_of_order",
)  # fmt: skip


def _print_findings(name: str, found: FindingList) -> None:
    if not found.count:
        return
    out.print(f"{name}: {found.count}", style="bold", markup=False)
    for each in found.first:
        line = "  ".join(part for part in (each.source, each.stream, each.detail) if part)
        out.print(f"  {line}", markup=False, soft_wrap=True)
    if found.count > len(found.first):
        out.print(f"  ... {found.count - len(found.first)} more", markup=False)
