"""What exactly-once delivery costs: `python -m bench.exactly_once HOST:PORT [--json]`.

Drains the same number of frames through two workers in turn, several times: one delivers at least
once, the other exactly once. Both have an engine that answers at once, without looking at the
picture, so what is measured is Kafka and our own code around it: the worst case for the ratio. A
model makes both slower by the same time per frame. Needs a broker with transactions, and makes
topics on it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import cv2
import numpy as np
import structlog

from pipeline import metrics as m
from pipeline.engine import EngineSnapshot, EngineState
from pipeline.item import Item, Outcome
from pipeline.ledger import PartitionId
from schemas.result import ClosedBy, ModelInfo
from schemas.settings import (
    DeliverySettings,
    Guarantee,
    HttpSettings,
    KafkaSettings,
    RouteSettings,
    Settings,
)
from workers.assembly import Deliver, EnginePort, Fail, Machinery
from workers.kafka_clients import (
    TopicSpec,
    create_topics,
    make_producer,
    start_client,
    stop_client,
)
from workers.worker import Worker

MODEL = ModelInfo(name="none", version="0" * 12, task="detect", conf=0.25, iou=0.7)
LOOK_S = 0.002
DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One comparison: frames per run, input partitions, runs of each kind."""

    frames: int
    partitions: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run: from the first frame received to the last answer acknowledged or committed."""

    guarantee: str
    frames_per_s: float
    mean_transaction: float
    """Answers per transaction; 0 without transactions."""


class EchoEngine:
    """Answers at once, on the caller's thread."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self.state = EngineState.NEW

    def start(self) -> None:
        self.state = EngineState.RUNNING

    def submit(self, items: Sequence[Item]) -> None:
        self._deliver([Outcome(item) for item in items])

    def flush(self, closed_by: ClosedBy, partitions: frozenset[PartitionId] | None = None) -> None:
        pass

    def drain(self) -> None:
        self.state = EngineState.DRAINING

    def stop(self, timeout_s: float) -> bool:  # noqa: ARG002 (the protocol's)
        self.state = EngineState.STOPPED
        return True

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(self.state, 0, (), 0, 1)


def machinery() -> Machinery:
    """Loads nothing."""

    def make_engine(deliver: Deliver, fail: Fail) -> EnginePort:  # noqa: ARG001 (the protocol's)
        return EchoEngine(deliver)

    return Machinery(make_engine, {"default": MODEL})


async def prepared(broker: str, guarantee: Guarantee, plan: Plan) -> Settings:
    """New topics with frames in them, and settings to drain them."""
    name = uuid.uuid4().hex[:10]
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=broker, group_id=f"bench-{name}"),
        routes=[RouteSettings(input=f"in-{name}", output=f"out-{name}", dead_letter=f"dlq-{name}")],
        delivery=DeliverySettings(guarantee=guarantee),
        http=HttpSettings(enabled=False),
    )
    route = settings.routes[0]
    topics = [TopicSpec(topic, plan.partitions) for topic in (route.input, route.output)]
    await create_topics(settings.kafka, [*topics, TopicSpec(route.dead_letter)])
    ok, encoded = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))
    if not ok:
        raise RuntimeError("no picture")
    picture = encoded.tobytes()
    producer = make_producer(settings.kafka)
    await start_client(producer, settings.kafka)
    try:
        sent = [
            await producer.send(route.input, picture, b"cam-%d" % (n % 64), n % plan.partitions)
            for n in range(plan.frames)
        ]
        await asyncio.gather(*sent)
    finally:
        await stop_client(producer)
    return settings


async def drained(settings: Settings, frames: int) -> Run:
    """Let a worker answer everything."""
    worker = Worker(settings, machinery)
    running = asyncio.ensure_future(worker.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await _reach(running, worker, m.RECEIVED, 1)
            begun_at = time.perf_counter()
            await _reach(running, worker, m.ANSWERED, frames)
            seconds = time.perf_counter() - begun_at
    finally:
        worker.request_stop()
        await running
    transactions = worker.metrics.value(m.TRANSACTIONS, outcome="committed")
    return Run(
        settings.delivery.guarantee.value,
        frames / seconds,
        frames / transactions if transactions else 0.0,
    )


async def _reach(
    running: asyncio.Future[int], worker: Worker, metric: m.Metric, count: int
) -> None:
    while worker.metrics.total(metric) < count:
        if running.done():
            raise RuntimeError(f"the worker ended with {running.result()}")
        await asyncio.sleep(LOOK_S)


async def compare(broker: str, plan: Plan) -> list[Run]:
    """The two in turn, `repeats` times each, after one run of each that does not count."""
    kinds = (Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE)
    runs: list[Run] = []
    for repeat in range(plan.repeats + 1):
        for guarantee in kinds:
            settings = await prepared(broker, guarantee, plan)
            run = await drained(settings, plan.frames)
            if repeat:
                runs.append(run)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", help="host:port of a Kafka with transactions")
    parser.add_argument("--frames", type=int, default=5_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    logging.disable(logging.WARNING)
    plan = Plan(args.frames, args.partitions, args.repeats)
    runs = asyncio.run(compare(args.broker, plan))
    rates = {
        kind.value: [run.frames_per_s for run in runs if run.guarantee == kind.value]
        for kind in Guarantee
    }
    medians = {kind: statistics.median(each) for kind, each in rates.items()}
    ratio = medians["exactly_once"] / medians["at_least_once"]
    if args.json:
        print(json.dumps({**asdict(plan), "runs": [asdict(run) for run in runs], "ratio": ratio}))
        return
    print(f"{plan.frames} frames, {plan.partitions} partitions, {plan.repeats} runs each, in turn")
    for kind, each in rates.items():
        print(f"{kind:14} {medians[kind]:8.0f} frames/s  ({min(each):.0f} to {max(each):.0f})")
    sizes = [run.mean_transaction for run in runs if run.mean_transaction]
    print(f"ratio {ratio:.2f}; {statistics.mean(sizes):.0f} answers per transaction")


if __name__ == "__main__":
    main()
