"""`make drill`: every scenario at full length, against a real Kafka; a table of what it came to."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.rig.choice import why_no_rig
from tests.rig.kafka import KafkaCluster, kafka_version
from tests.scenario.catalogue import SCENARIOS, Scenario
from tests.scenario.oracle import Verdict
from tests.scenario.plot import plot_memory
from tests.scenario.slow_device import slow_device
from tests.scenario.stage import Rig

WIDTH = 150
OUTPUTS = "--json docs/drill.json --markdown docs/drill.md --plot docs/drill-memory.png"
SCENARIO_S = 900.0
"""A scenario that takes longer has failed."""
HEADINGS = ("scenario", "frames", "lost", "duplicated", "out of order", "recovery s", "kept")

LEGEND = """
- **lost**: records without an answer. **duplicated**: answers beyond a record's first; in brackets
  the most that at-least-once allows there: what was answered and not yet committed when the worker
  ended, or could be in flight.
- **out of order**: first answers that left after a later one of their stream. The frames of each
  stream change between two buckets all along.
- **recovery**: from the fault, or from its end where it lasts (broker away, network cut), to the
  first new answer; the longest of all repeats. After a kill this holds the session time-out (6 s
  here), a process start and the import of torch. A picture that crashes or hangs ends two processes
  before it is convicted: from the end of the first to an answer after that of the second.
- **kept**: nothing lost, nothing out of order, no duplicate beyond the bound, no answer to nothing;
  and what the scenario itself asks (exit codes, offsets, membership, alarms).
""".strip().splitlines()


@dataclass(frozen=True)
class Row:
    """One scenario's line. `error` stands for a verdict that was never reached."""

    scenario: Scenario
    seconds: float
    verdict: Verdict | None = None
    error: str | None = None

    @property
    def kept(self) -> bool:
        return self.verdict is not None and not self.verdict.faults()

    def cells(self) -> list[str]:
        """As in `HEADINGS`."""
        v = self.verdict
        if v is None:
            return [self.scenario.name, "–", "–", "–", "–", "–", f"NO: {self.error}"]
        duplicated = f"{v.duplicated}" if not v.allowed else f"{v.duplicated} (≤ {v.allowed})"
        recovery = "–" if v.recovery_s is None else f"{v.recovery_s:.1f}"
        kept = "yes" if self.kept else f"NO: {'; '.join(v.faults())}"
        return [
            self.scenario.name, f"{v.frames:,}", f"{v.lost}", duplicated, f"{v.out_of_order}",
            recovery, kept,
        ]  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        verdict = None if self.verdict is None else asdict(self.verdict)
        return {
            "scenario": self.scenario.name,
            "kept": self.kept,
            "seconds": round(self.seconds, 1),
            "arguments": dict(self.scenario.long),
            "verdict": verdict,
            "error": self.error,
        }


@dataclass(frozen=True)
class Files:
    """Where a drill leaves what it found; all optional."""

    json: Path | None
    markdown: Path | None
    plot: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the drill. Returns 0 when every promise was kept, 1 when one was not, 2 when there is
    no Kafka to be had."""
    options = _options(arguments)
    console = Console(stderr=True)
    # Of brokers that are dead on purpose.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    if lacking := why_no_rig():
        console.print(lacking)
        return 2
    chosen = [each for each in SCENARIOS if options.only.lower() in each.name.lower()]
    files = Files(options.json, options.markdown, options.plot)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="frameloom-drill-") as name:
        rows = _run_all(chosen, Path(name), files, options.jobs)
    table = Table(*HEADINGS)
    for row in rows:
        table.add_row(*row.cells())
    Console(width=WIDTH).print(table)
    _write(files, rows, time.monotonic() - begun, options.jobs)
    return 0 if all(row.kept for row in rows) else 1


def _run_all(chosen: Sequence[Scenario], folder: Path, files: Files, jobs: int) -> list[Row]:
    """`jobs` threads take scenario after scenario, each with a Kafka of its own."""
    # Shared by the threads: each scenario goes to the one that asks for it.
    waiting, rows = iter(list(enumerate(chosen))), dict[int, Row]()

    def work(job: int) -> None:
        with KafkaCluster(folder / f"kafka-{job}", proxied=True) as cluster:
            for number, scenario in waiting:
                row = rows[number] = _run(scenario, cluster, folder / f"{number:02}", files)
                console.print(f"{' · '.join(row.cells())} ({row.seconds:.0f} s)")

    console = Console(stderr=True, width=WIDTH)
    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work, job) for job in range(jobs)]:
            done.result()
    return [rows[number] for number in sorted(rows)]


def _run(scenario: Scenario, cluster: KafkaCluster, folder: Path, files: Files) -> Row:
    folder.mkdir()
    begun = time.monotonic()
    extra = {"samples": folder / "memory.json"} if scenario.scene is slow_device else {}

    async def go() -> Verdict:
        async with asyncio.timeout(SCENARIO_S):
            return await scenario.scene(
                Rig(cluster, folder, scenario.guarantee), **scenario.long, **extra
            )

    try:
        verdict = asyncio.run(go())
    except Exception as error:  # noqa: BLE001 (one scenario's end is a line of the table)
        traceback.print_exc()
        text = " ".join(str(error).split())[:300]
        return Row(scenario, time.monotonic() - begun, error=f"{type(error).__name__}: {text}")
    if extra and files.plot is not None:
        plot_memory(json.loads((folder / "memory.json").read_text()), files.plot)
    return Row(scenario, time.monotonic() - begun, verdict)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make drill", description=__doc__)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument(
        "--jobs", type=int, default=1, help="scenarios at a time, each with a Kafka"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--plot", type=Path, help="write the slow device's memory to this PNG")
    return parser.parse_args(arguments)


def _write(files: Files, rows: Sequence[Row], seconds: float, jobs: int) -> None:
    run = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "kafka": kafka_version(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "minutes": round(seconds / 60, 1),
        "jobs": jobs,
    }
    if files.json is not None:
        document = run | {"rows": [row.plain() for row in rows]}
        files.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if files.markdown is not None:
        files.markdown.write_text(_markdown(run, rows, files.plot))


def _markdown(run: dict[str, Any], rows: Sequence[Row], plot: Path | None) -> str:
    lines = [
        "# The drill",
        "",
        "Every scenario at full length against real Apache Kafka: what breaks, and what became of",
        "each record. Made by `make drill`; what each scenario does stands in `tests/scenario/`.",
        "",
        (
            f"{run['date']} · {run['cores']} cores shared with other work · Apache Kafka "
            f"{run['kafka']} (KRaft) · Python {run['python']} · {run['minutes']} minutes, "
            f"{run['jobs']} scenarios at a time · made with:"
        ),
        "",
        "```sh",
        f"make drill ARGS='--jobs {run['jobs']} {OUTPUTS}'",
        "```",
        "",
        f"| {' | '.join(HEADINGS)} |",
        "|---|---:|---:|---:|---:|---:|---|",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
        "",
        *LEGEND,
    ]
    if plot is not None:
        lines += [
            "",
            f"![Memory of the worker while its device is ten times too slow]({plot.name})",
        ]
    return "\n".join([*lines, ""])
