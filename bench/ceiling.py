"""End to end against what its parts can do: `python -m bench.ceiling --bootstrap HOST:PORT`.

In one process and in turn, several times, with the same frames of the mixed streams:

- *ingest*: the worker on Kafka with a lane that neither decodes nor infers;
- *decode*: the decoder alone, from encoded bytes in memory, in batches;
- *model*: the model and its post-processing alone, from rows that are ready;
- *engine*: the worker's engine, fed with encoded bytes from memory;
- *end to end*: the worker, from Kafka back to Kafka.

The first three are the ceilings. On a CPU they share the cores, so nobody can reach the lowest of
them: the three together can at best take the sum of their processor time. What the way through
Kafka costs is end to end against the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
import torch

from bench.contender import Order, Spent
from bench.cpu_rig import Rig, items_of, rig_settings
from bench.kafka_load import Load, Topics, filled
from bench.mixed_streams import mixed_loads
from bench.noop_lane import noop_lane
from bench.report import Bars, Cell, Document, Goal, machine, median, plan_of, show, spread, write
from bench.worker_round import settings_of, worker_round
from pipeline.item import Item
from pipeline.ports import Lane
from schemas.settings import Backend, DeviceSettings, RouteSettings, Settings
from workers.lanes import Loaded

PARTS = ("ingest", "decode", "model", "engine", "end to end")
GOAL = 0.97


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        bootstrap: the broker.
        frames: of the mixed streams, per round.
        repeats: rounds of each part.
        backend: of the model.
        decode_threads, model_threads: 0 lets the worker choose.
    """

    bootstrap: str
    frames: int = 129
    repeats: int = 5
    backend: str = "auto"
    decode_threads: int = 0
    model_threads: int = 0


class Parts:
    """Everything that takes turns."""

    def __init__(self, options: Options, loads: Sequence[Load], topics: Topics) -> None:
        self._options = options
        self._route = RouteSettings(backend=Backend(options.backend))
        device = DeviceSettings(
            decode_threads=options.decode_threads, model_threads=options.model_threads
        )
        self.rig = Rig(rig_settings(self._route, device))
        self._topics = topics
        self._items = items_of(loads, self.rig.buckets)
        self._batches = _batches(self._items)
        self._rows = {
            b.name: torch.full((b.max_batch, b.height, b.width, 3), 114, dtype=torch.uint8)
            for b in self.rig.buckets
        }

    def round(self, part: str) -> Spent:
        """One turn of a part."""
        match part:
            case "ingest":
                return asyncio.run(self._through_kafka(lambda _: _nothing(self._route)))
            case "end to end":
                return asyncio.run(self._through_kafka(lambda _: self.rig.loaded()))
            case "engine":
                run = self.rig.run(self._items)
                note = f"{run.frames / run.batches:.1f} frames a batch"
                return Spent(frames=run.frames, cpu_s=run.cpu_s, wall_s=run.wall_s, note=note)
            case "decode":
                return self._alone(self._decode)
            case _:
                return self._alone(self._infer)

    def _alone(self, work: Callable[[Lane, Sequence[Item]], None]) -> Spent:
        lane = self.rig.lane()
        wall, cpu = time.perf_counter(), time.process_time()
        for batch in self._batches:
            work(lane, batch)
        cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
        lane.decoder.close()
        return Spent(frames=len(self._items), cpu_s=cpu_s, wall_s=wall_s)

    def _decode(self, lane: Lane, batch: Sequence[Item]) -> None:
        refused = lane.decoder.decode(batch, self._rows[batch[0].bucket.name][: len(batch)])
        if any(refused):
            raise RuntimeError("a picture of the bench cannot be decoded")

    def _infer(self, lane: Lane, batch: Sequence[Item]) -> None:
        raw = lane.model.infer(self._rows[batch[0].bucket.name][: len(batch)])
        lane.postprocessor.detections(raw, [item.geometry for item in batch])

    async def _through_kafka(self, load: Callable[[Settings], Loaded]) -> Spent:
        order = Order(
            bootstrap=self._options.bootstrap, input=self._topics.input,
            output=self._topics.output, dead_letter=self._topics.dead_letter,
            group=f"bench-{uuid.uuid4().hex}", frames=len(self._items),
        )  # fmt: skip
        settings = settings_of(order, self._route)
        device = self.rig.settings.device
        return await worker_round(
            msgspec.structs.replace(settings, device=device), load, order.frames
        )


def _nothing(route: RouteSettings) -> Loaded:
    return Loaded({route.name: noop_lane()}, "cpu")


def _batches(items: Sequence[Item]) -> list[list[Item]]:
    """Full batches where there are enough of a bucket, in the order in which they fill."""
    open_batches: dict[str, list[Item]] = {}
    batches: list[list[Item]] = []
    for item in items:
        batch = open_batches.setdefault(item.bucket.name, [])
        batch.append(item)
        if len(batch) == item.bucket.max_batch:
            batches.append(open_batches.pop(item.bucket.name))
    return batches + list(open_batches.values())


async def _with_topics(options: Options, loads: Sequence[Load]) -> dict[str, list[Spent]]:
    found: dict[str, list[Spent]] = {part: [] for part in PARTS}
    async with filled(options.bootstrap, loads) as topics:
        parts = await asyncio.to_thread(Parts, options, loads, topics)
        for repeat in range(options.repeats + 1):
            for part in PARTS:
                # Each round has a loop of its own, in a thread: the real worker's way.
                spent = await asyncio.to_thread(parts.round, part)
                if repeat:
                    found[part].append(spent)
    return found


def measure(options: Options) -> Document:
    """All parts in turn, after one turn of each that does not count."""
    about = machine()
    loads = mixed_loads(options.frames)
    return document(options, about, asyncio.run(_with_topics(options, loads)))


def document(options: Options, about: dict[str, Cell], found: dict[str, list[Spent]]) -> Document:
    """The figures. Ratios are medians over the repeats, each of one turn of all parts."""
    rows: list[dict[str, Cell]] = [
        {
            "part": part,
            "frames_per_s": median([spent.rate for spent in rounds]),
            "from-to": spread([spent.rate for spent in rounds]),
            "cpu_ms_per_frame": median([spent.cpu_us / 1e3 for spent in rounds]),
            "note": rounds[-1].note,
        }
        for part, rounds in found.items()
    ]
    turns = [dict(zip(PARTS, turn, strict=True)) for turn in zip(*found.values(), strict=True)]
    goals = [
        Goal(
            name="end to end / engine, frames per second",
            value=median([t["end to end"].rate / t["engine"].rate for t in turns]),
            goal=GOAL,
        ),
        Goal(
            name="engine / end to end, processor time per frame",
            value=median([t["engine"].cpu_us / t["end to end"].cpu_us for t in turns]),
            goal=GOAL,
        ),
        Goal(
            name="end to end / lowest of the three ceilings, frames per second",
            value=median(
                [t["end to end"].rate / min(t[part].rate for part in PARTS[:3]) for t in turns]
            ),
            goal=GOAL,
        ),
        Goal(
            name="sum of the three parts / end to end, processor time per frame",
            value=median(
                [sum(t[part].cpu_us for part in PARTS[:3]) / t["end to end"].cpu_us for t in turns]
            ),
            goal=GOAL,
        ),
    ]
    bars = Bars(
        title="Three ceilings, the engine, and the whole way",
        axis="frames per second",
        groups=list(found),
        series={"rate": [median([s.rate for s in rounds]) for rounds in found.values()]},
    )
    return Document(
        bench="ceiling",
        machine=about,
        plan=plan_of(asdict(options)),
        rows=rows,
        goals=goals,
        bars=bars,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all goals are met, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--frames", type=int, default=129)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backend", default="auto", choices=[each.value for each in Backend])
    parser.add_argument("--decode-threads", type=int, default=0)
    parser.add_argument("--model-threads", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    options = Options(
        asked.bootstrap, asked.frames, asked.repeats, asked.backend,
        asked.decode_threads, asked.model_threads,
    )  # fmt: skip
    found = measure(options)
    show(found)
    write(found, asked.json, asked.plot)
    return 0 if all(goal.met for goal in found.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
