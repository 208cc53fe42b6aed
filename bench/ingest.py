"""What more processes bring where ingest is the limit: `python -m bench.ingest --bootstrap B`.

The real worker with a lane that neither decodes nor infers, as one process and as several (as
`frameloom worker --devices 0,0` makes them), in turn, several times. The frames are the same, and
divided among the processes beforehand, as a group divides partitions. What is compared is frames
per second from when the first process has its partitions to the last answer; the broker and what
fills the topics run on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.contender import Contender, Order, Spent
from bench.kafka_load import Topics, filled
from bench.overhead import loads
from bench.report import (
    Bars,
    Cell,
    Document,
    check_files,
    machine,
    median,
    plan_of,
    show,
    spread,
    write,
)

WORKER = ["-m", "bench.overhead", "--side", "worker"]


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        bootstrap: the broker; it holds the frames once for each number of processes.
        frames: of a round, all processes together.
        repeats: rounds of each number of processes that count; one more comes first.
        kib: length of a record.
        processes: how many, each number a side.
    """

    bootstrap: str
    frames: int = 6_000
    repeats: int = 3
    kib: int = 20
    processes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of several processes.

    Attributes:
        rate: frames per second of all, from the first process's partitions to the last answer.
        cpu_us: processor microseconds per frame of all.
    """

    rate: float
    cpu_us: float


def together(parts: Sequence[Spent]) -> Round:
    """What the processes did between them."""
    frames = sum(part.frames for part in parts)
    began_s = min(part.ended_s - part.wall_s for part in parts)
    ended_s = max(part.ended_s for part in parts)
    return Round(frames / (ended_s - began_s), sum(part.cpu_s for part in parts) / frames * 1e6)


async def measure(options: Options) -> Document:
    """All numbers of processes in turn."""
    about = machine()
    found: dict[int, list[Round]] = {count: [] for count in options.processes}
    async with contextlib.AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(Contender(f"worker {number}", WORKER))
            for number in range(max(options.processes))
        ]
        shares: dict[int, list[Topics]] = {}
        for count in options.processes:
            share = loads(options.kib, options.frames // count)
            shares[count] = [
                await stack.enter_async_context(filled(options.bootstrap, share))
                for _ in range(count)
            ]
        for repeat in range(options.repeats + 1):
            for count, topics in shares.items():
                orders = [_order(options, each, count) for each in topics]
                # One more worker than orders waits idle.
                asked = zip(workers, orders, strict=False)
                spent = await asyncio.gather(*(worker.round(order) for worker, order in asked))
                if repeat:
                    found[count].append(together(spent))
    return document(options, about, found)


def _order(options: Options, topics: Topics, count: int) -> Order:
    return Order(
        bootstrap=options.bootstrap, input=topics.input, output=topics.output,
        dead_letter=topics.dead_letter, group=f"bench-{uuid.uuid4().hex}",
        frames=options.frames // count,
    )  # fmt: skip


def document(options: Options, about: dict[str, Cell], found: dict[int, list[Round]]) -> Document:
    """The figures. Gains are medians of the ratios of neighbouring rounds."""
    first = options.processes[0]
    rows: list[dict[str, Cell]] = []
    for count, rounds in found.items():
        gains = [r.rate / b.rate for r, b in zip(rounds, found[first], strict=True)]
        rows.append(
            {
                "processes": count,
                "frames_per_s": median([r.rate for r in rounds]),
                "cpu_us": median([r.cpu_us for r in rounds]),
                "gain": median(gains),
                "gains": spread(gains),
            }
        )
    bars = Bars(
        title=f"Frames per second with a model that does nothing, {options.kib} KiB",
        axis="frames per second",
        groups=[f"{count} process" + "es" * (count > 1) for count in found],
        series={"processes": [median([r.rate for r in rounds]) for rounds in found.values()]},
    )
    plan = plan_of({**asdict(options), "processes": ", ".join(map(str, options.processes))})
    return Document(bench="ingest", machine=about, plan=plan, rows=rows, goals=[], bars=bars)


def main(arguments: Sequence[str] | None = None) -> int:
    """The bench. 0: it has no goal."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--frames", type=int, default=6_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kib", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    check_files(asked.json, asked.plot)
    options = Options(
        asked.bootstrap, asked.frames, asked.repeats, asked.kib, tuple(asked.processes)
    )
    found = asyncio.run(measure(options))
    show(found)
    write(found, asked.json, asked.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
