"""End to end against what its parts can do: `python -m bench.ceiling --bootstrap HOST:PORT`.

In one process and in turn, several times, with the same frames of the mixed streams:

- *ingest*: the worker on Kafka with a lane that neither decodes nor infers;
- *decode*: the decoder alone, from encoded bytes in memory, in batches;
- *model*: the model and its post-processing alone, from rows that are ready;
- *engine*: the worker's engine, fed with encoded bytes from memory;
- *end to end*: the worker, from Kafka back to Kafka.

All of it is measured at full work. What goes through an engine is measured from one answer to
another: the first answers come before, and at the end as many frames wait as the worker takes in,
so that neither a start nor a drain is inside. The topic is filled beforehand, so no producer works
meanwhile; it has one partition, so that both ways answer the same frames in the same order. The
broker runs on the same cores: its processor time is a column of its own.

The first three are the ceilings. On a CPU they share the cores, so nobody can reach the lowest of
them: the three together can at best take the sum of their processor time. What the way through
Kafka costs is end to end against the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
import torch

from bench.ceiling_report import PARTS, document
from bench.contender import Meter, Order, ShortRoundError, Spent
from bench.cpu_rig import CREDITS, LEAD, POLL, Rig, items_of, rig_settings
from bench.kafka_load import Load, Topics, filled
from bench.mixed_streams import mixed_loads
from bench.noop_lane import noop_lane
from bench.report import Document, check_files, machine, plan_of, show, write
from bench.switched_lane import Switch, switched
from bench.worker_round import Span, settings_of, worker_round
from pipeline.item import Item
from pipeline.ports import Lane
from schemas.settings import (
    DEFAULT_BUCKETS,
    Backend,
    DeviceSettings,
    RouteSettings,
    Settings,
)
from workers.lanes import Loaded


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        bootstrap: the broker.
        broker: its process id, if it runs on this machine and was started for this.
        frames: of the mixed streams, measured in each turn of a part.
        repeats: turns of each part.
        backend: of the model.
        decode_threads, model_threads: 0 lets the worker choose.
        max_batch: of every bucket. Small, as `configs/cpu.yaml` has it: both ends of what is
            measured fall between two batches, and frames of large pictures come in batches, too.
    """

    bootstrap: str
    broker: int | None = None
    frames: int = 256
    repeats: int = 3
    backend: str = "auto"
    decode_threads: int = 0
    model_threads: int = 0
    max_batch: int = 4

    @property
    def on_topic(self) -> int:
        """Records: those that lead, those measured, and those that wait at the end."""
        return LEAD + self.frames + CREDITS + 2 * POLL


class Parts:
    """Everything that takes turns."""

    def __init__(self, options: Options, loads: Sequence[Load], topics: Topics) -> None:
        self._options = options
        buckets = [
            msgspec.structs.replace(bucket, max_batch=options.max_batch)
            for bucket in DEFAULT_BUCKETS
        ]
        self._route = RouteSettings(backend=Backend(options.backend), buckets=buckets)
        device = DeviceSettings(
            decode_threads=options.decode_threads, model_threads=options.model_threads
        )
        self.rig = Rig(rig_settings(self._route, device))
        self._topics = topics
        self._items = items_of(loads, self.rig.buckets)[: options.frames]
        self._batches = full_batches(self._items)
        self._rows = {
            b.name: torch.full((b.max_batch, b.height, b.width, 3), 114, dtype=torch.uint8)
            for b in self.rig.buckets
        }

    def round(self, part: str) -> Spent:
        """One turn of a part.

        Raises:
            ShortRoundError: it was over before it could be measured.
        """
        spent = self._turn(part)
        if not spent.frames:
            raise ShortRoundError(part)
        return spent

    def _turn(self, part: str) -> Spent:
        match part:
            case "ingest":
                # Nothing is slow here: nearly all of the topic is measured.
                frames = self._options.on_topic - LEAD - POLL
                return self._through_kafka(_nothing(self._route), frames)
            case "end to end":
                switch = Switch()
                loaded = self.rig.loaded(lambda lane: switched(lane, switch))
                return self._through_kafka(loaded, self._options.frames, switch.off)
            case "engine":
                return self.rig.run(self._items).spent
            case "decode":
                return self._alone(self._decode)
            case _:
                return self._alone(self._infer)

    def _alone(self, work: Callable[[Lane, Sequence[Item]], None]) -> Spent:
        lane = self.rig.lane()
        work(lane, self._batches[0])
        meter = Meter()
        for batch in self._batches:
            work(lane, batch)
        spent = meter.spent(len(self._items), batches=len(self._batches))
        lane.decoder.close()
        return spent

    def _decode(self, lane: Lane, batch: Sequence[Item]) -> None:
        refused = lane.decoder.decode(batch, self._rows[batch[0].bucket.name][: len(batch)])
        if any(refused):
            raise RuntimeError("a picture of the bench cannot be decoded")

    def _infer(self, lane: Lane, batch: Sequence[Item]) -> None:
        raw = lane.model.infer(self._rows[batch[0].bucket.name][: len(batch)])
        lane.postprocessor.detections(raw, [item.geometry for item in batch])

    def _through_kafka(
        self, loaded: Loaded, frames: int, enough: Callable[[], None] = lambda: None
    ) -> Spent:
        order = Order(
            bootstrap=self._options.bootstrap, input=self._topics.input,
            output=self._topics.output, dead_letter=self._topics.dead_letter,
            group=f"bench-{uuid.uuid4().hex}", frames=frames,
        )  # fmt: skip
        settings = settings_of(order, self._route)
        settings = msgspec.structs.replace(
            settings,
            device=self.rig.settings.device,
            flow=msgspec.structs.replace(settings.flow, max_items=CREDITS),
        )
        span = Span(after=LEAD, frames=frames, enough=enough, broker=self._options.broker)

        def load(_: Settings) -> Loaded:
            return loaded

        # A loop of its own: the real worker's way.
        return asyncio.run(worker_round(settings, load, span))


def _nothing(route: RouteSettings) -> Loaded:
    return Loaded({route.name: noop_lane()}, "cpu")


def full_batches(items: Sequence[Item]) -> list[list[Item]]:
    """Full batches where there are enough of a bucket, in the order in which they fill."""
    open_batches: dict[str, list[Item]] = {}
    batches: list[list[Item]] = []
    for item in items:
        batch = open_batches.setdefault(item.bucket.name, [])
        batch.append(item)
        if len(batch) == item.bucket.max_batch:
            batches.append(open_batches.pop(item.bucket.name))
    return batches + list(open_batches.values())


async def _with_topics(
    options: Options, loads: Sequence[Load]
) -> tuple[dict[str, list[Spent]], str]:
    found: dict[str, list[Spent]] = {part: [] for part in PARTS}
    async with filled(options.bootstrap, loads, partitions=1) as topics:
        parts = await asyncio.to_thread(Parts, options, loads, topics)
        for repeat in range(options.repeats):
            # There and back: a machine that becomes slower does so for all parts alike.
            for part in PARTS if repeat % 2 == 0 else reversed(PARTS):
                found[part].append(await asyncio.to_thread(parts.round, part))
    return found, f"{parts.rig.backend}, {parts.rig.decoder}"


def measure(options: Options) -> Document:
    """All parts in turn."""
    about = machine()
    loads = mixed_loads(options.on_topic)
    found, used = asyncio.run(_with_topics(options, loads))
    size = sum(len(load.value) for load in loads) / len(loads)
    plan = {**asdict(options), "used": used, "mean_record_kib": round(size / 1024, 1)}
    del plan["broker"]
    return document(plan_of(plan), about, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all goals are met, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--broker", type=int, metavar="PID", help="The broker, on this machine.")
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backend", default="auto", choices=[each.value for each in Backend])
    parser.add_argument("--decode-threads", type=int, default=0)
    parser.add_argument("--model-threads", type=int, default=0)
    parser.add_argument("--max-batch", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    check_files(asked.json, asked.plot)
    options = Options(
        asked.bootstrap, asked.broker, asked.frames, asked.repeats, asked.backend,
        asked.decode_threads, asked.model_threads, asked.max_batch,
    )  # fmt: skip
    found = measure(options)
    show(found)
    write(found, asked.json, asked.plot)
    return 0 if all(goal.met for goal in found.goals) else 1


if __name__ == "__main__":
    sys.exit(main())
