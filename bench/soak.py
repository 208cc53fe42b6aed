"""Does a worker keep what it is done with? `python -m bench.soak HOST:PORT --kind K --seconds S`

A worker runs in this process, on a real engine whose model finds nothing, and is fed one kind of
record: as fast as it answers, or (`--overload`) twice as fast as a slow model can. Every second or
so, after a full garbage collection, it is written down how many objects there are, how much memory
the process has, and how much of it records in flight hold. The first third is warm-up. Exit code 1
when the median of the last third is above that of the middle third by more than noise is.

Topics are made on the broker; `--kind exactly-once` needs one with transactions.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil
import structlog
from msgspec import structs

from bench.soak_lane import DECODERS, NoModel, machinery
from bench.soak_load import SEGMENT_FRAMES, Kind, Load
from pipeline import metrics as m
from schemas.settings import (
    BucketSettings,
    ClaimCheckSettings,
    DeliverySettings,
    FlowSettings,
    Guarantee,
    HttpSettings,
    KafkaSettings,
    RouteSettings,
    Settings,
)
from workers.kafka_clients import TopicSpec, create_topics, make_producer, start_client, stop_client
from workers.worker import Worker

MIB = 1024 * 1024
PARTITIONS = 4
MAX_BATCH = 8
MAX_ITEMS = 300
SLOW_S = 0.05
"""Per batch of a model under overload: 160 frames per second."""
TURN_RECORDS = 100
MAX_BACKLOG = 2_000
"""Answers that the broker may owe while the worker is fed as fast as it answers."""
VISIT_S = 3.0
"""How long the second worker stays, and stays away."""
LOOK_AGAIN_S = 0.01
ENOUGH_LOOKS = 6
OBJECTS_SLACK, RSS_SLACK_MIB = 1_000, 6.0
"""What counts as noise at any length."""
SHARE_SLACK = 0.02
OBJECTS_PER_ITEM = 40
"""About what a record in flight is made of, at most. How many there are goes up and down."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One soak.

    Attributes:
        kind, decoder: what is sent, and what decodes it.
        seconds: how long.
        overload: twice as much as the model can take.
        look_s: time between two looks.
    """

    kind: Kind
    seconds: float
    overload: bool = False
    decoder: str = "none"
    look_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What there was at one instant. `held_mib`: of records in flight."""

    at_s: float
    answered: int
    objects: int
    rss_mib: float
    in_flight: int
    held_mib: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it: median of the last third above that of the middle one, beyond noise."""

    objects_grew: int
    rss_grew_mib: float

    @property
    def leaks(self) -> bool:
        return self.objects_grew > 0 or self.rss_grew_mib > 0


def judge(looks: Sequence[Look]) -> Verdict:
    """Whether anything only grows.

    Raises:
        ValueError: too few looks to say.
    """
    if len(looks) < ENOUGH_LOOKS:
        raise ValueError(f"{len(looks)} looks say nothing: more seconds are needed")
    third = len(looks) // 3
    middle, last = looks[third : 2 * third], looks[2 * third :]
    objects = statistics.median(look.objects for look in middle)
    rss = statistics.median(look.rss_mib for look in middle)
    more = statistics.median(look.objects for look in last) - objects
    inside = statistics.median(look.in_flight for look in middle)
    more_inside = statistics.median(look.in_flight for look in last) - inside
    more -= OBJECTS_PER_ITEM * max(0.0, more_inside)
    more_mib = statistics.median(look.rss_mib for look in last) - rss
    return Verdict(
        max(0, round(more - OBJECTS_SLACK - SHARE_SLACK * objects)),
        max(0.0, more_mib - RSS_SLACK_MIB - SHARE_SLACK * rss),
    )


@dataclass(slots=True)
class Soak:
    """A run under way."""

    plan: Plan
    settings: Settings
    model: NoModel
    load: Load
    workers: list[Worker] = field(default_factory=list[Worker])
    answered_before: int = 0
    sent: int = 0
    owed: int = 0
    looks: list[Look] = field(default_factory=list[Look])

    @property
    def answered(self) -> int:
        """By every worker there was."""
        return self.answered_before + sum(_answered(worker) for worker in self.workers)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[Worker]:
        """One more worker, drained at the end.

        Raises:
            RuntimeError: it ended with an error.
        """
        load = machinery(self.settings, self.model, self.plan.decoder)
        worker = Worker(self.settings, load)
        running = asyncio.ensure_future(worker.run())
        self.workers.append(worker)
        try:
            yield worker
        finally:
            self.model.seconds_per_batch = 0.0 if len(self.workers) == 1 else self.model_s
            worker.request_stop()
            code = await running
            self.workers.remove(worker)
            self.answered_before += _answered(worker)
        if code:
            raise RuntimeError(f"a worker ended with {code}")

    @property
    def model_s(self) -> float:
        """How long its model takes for a batch."""
        return SLOW_S if self.plan.overload else 0.0

    async def feed(self) -> None:
        """Send until cancelled."""
        producer = make_producer(self.settings.kafka)
        await start_client(producer, self.settings.kafka)
        topic = self.settings.routes[0].input
        answers = SEGMENT_FRAMES if self.plan.kind is Kind.SEGMENTS else 1
        per_s = 2 * MAX_BATCH / SLOW_S / answers
        records = TURN_RECORDS // answers
        try:
            while True:
                begun_at = time.perf_counter()
                sent = [self.load.record(self.sent + n) for n in range(records)]
                waiting = [
                    await producer.send(topic, each.value, each.key, (self.sent + n) % PARTITIONS)
                    for n, each in enumerate(sent)
                ]
                await asyncio.gather(*waiting)
                self.sent += len(sent)
                self.owed += sum(each.answers for each in sent)
                if self.plan.overload:
                    spent_s = time.perf_counter() - begun_at
                    await asyncio.sleep(max(0.0, records / per_s - spent_s))
                while not self.plan.overload and self.owed - self.answered > MAX_BACKLOG:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            await stop_client(producer)

    async def visit(self) -> None:
        """A second worker comes and goes, until cancelled."""
        while True:
            await asyncio.sleep(VISIT_S)
            async with self.working():
                await asyncio.sleep(VISIT_S)

    def look(self, begun_at: float, process: psutil.Process) -> Look:
        """Count everything, now."""
        gc.collect()
        held = sum(worker.metrics.value(m.IN_FLIGHT_BYTES) for worker in self.workers)
        in_flight = sum(worker.metrics.value(m.IN_FLIGHT) for worker in self.workers)
        return Look(
            time.perf_counter() - begun_at,
            self.answered,
            len(gc.get_objects()),
            process.memory_info().rss / MIB,
            int(in_flight),
            held / MIB,
        )


def _answered(worker: Worker) -> int:
    return int(worker.metrics.total(m.ANSWERED) + worker.metrics.total(m.DEAD_LETTERED))


async def prepared(broker: str, plan: Plan, folder: Path) -> Settings:
    """New topics, and settings for them."""
    name = uuid.uuid4().hex[:10]
    exactly = plan.kind is Kind.EXACTLY_ONCE
    bucket = BucketSettings(
        name="b", max_source_pixels=1 << 40, height=64, width=64, max_batch=MAX_BATCH
    )
    settings = Settings(
        kafka=KafkaSettings(
            bootstrap_servers=broker, group_id=f"soak-{name}", session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
        ),
        routes=[
            RouteSettings(
                input=f"in-{name}", output=f"out-{name}", dead_letter=f"dlq-{name}",
                buckets=[bucket],
            )
        ],
        delivery=DeliverySettings(
            guarantee=Guarantee.EXACTLY_ONCE if exactly else Guarantee.AT_LEAST_ONCE
        ),
        flow=FlowSettings(max_items=MAX_ITEMS),
        http=HttpSettings(enabled=False),
    )  # fmt: skip
    if plan.kind is Kind.CLAIMS:
        claims = ClaimCheckSettings(enabled=True, allowed_prefixes=[folder.as_uri()])
        settings = structs.replace(settings, claim_check=claims)
    route = settings.routes[0]
    topics = [TopicSpec(topic, PARTITIONS) for topic in (route.input, route.output)]
    await create_topics(settings.kafka, [*topics, TopicSpec(route.dead_letter)])
    return settings


async def soak(broker: str, plan: Plan, folder: Path, *, show: bool = False) -> list[Look]:
    """Run it, and drain. `folder` is for claimed pictures.

    Raises:
        RuntimeError: the worker failed, or nothing was answered.
    """
    settings = await prepared(broker, plan, folder)
    try:
        return await _soak(settings, plan, folder, show=show)
    finally:
        gc.unfreeze()


async def _soak(settings: Settings, plan: Plan, folder: Path, *, show: bool) -> list[Look]:
    run = Soak(plan, settings, NoModel(0.0), Load(plan.kind, folder))
    run.model.seconds_per_batch = run.model_s
    process = psutil.Process()
    # What is here before the worker is not counted: libraries hold hundreds of thousands.
    gc.collect()
    gc.freeze()
    async with run.working() as worker, asyncio.TaskGroup() as group:
        while not worker.assigned:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN_S)
        tasks = [group.create_task(run.feed())]
        if plan.kind is Kind.REBALANCE:
            tasks.append(group.create_task(run.visit()))
        while not run.answered:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AGAIN_S)
        begun_at = time.perf_counter()
        while time.perf_counter() - begun_at < plan.seconds or len(run.looks) < ENOUGH_LOOKS:
            await asyncio.sleep(plan.look_s)
            run.looks.append(run.look(begun_at, process))
            if show:
                print(_row(run.looks[-1]), flush=True)
        for task in tasks:
            task.cancel()
    if not run.answered:
        raise RuntimeError("nothing was answered")
    return run.looks


def _row(look: Look) -> str:
    return (
        f"{look.at_s:8.1f} {look.answered:10,} {look.objects:10,} {look.rss_mib:9.1f} "
        f"{look.in_flight:9,} {look.held_mib:9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", help="host:port of a Kafka")
    parser.add_argument("--kind", type=Kind, choices=list(Kind), default=Kind.FRAMES)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--overload", action="store_true", help="a slow model, fed twice too fast")
    parser.add_argument("--decoder", choices=DECODERS, default="none")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.disable(logging.WARNING)
    plan = Plan(args.kind, args.seconds, args.overload, args.decoder, max(0.1, args.seconds / 60))
    if not args.json:
        print(f"{'seconds':>8} {'answered':>10} {'objects':>10} {'RSS MiB':>9} "
              f"{'in flight':>9} {'held MiB':>9}")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        looks = asyncio.run(soak(args.broker, plan, Path(folder), show=not args.json))
    verdict = judge(looks)
    if args.json:
        print(json.dumps({"looks": [asdict(look) for look in looks], **asdict(verdict)}))
    elif verdict.leaks:
        print(f"GROWS: {verdict.objects_grew:,} objects, {verdict.rss_grew_mib:.1f} MiB")
    else:
        print("flat")
    sys.exit(1 if verdict.leaks else 0)


if __name__ == "__main__":
    main()
