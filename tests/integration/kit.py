"""Workers, topics and records for tests against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import cv2
import msgspec
import numpy as np

from pipeline.batcher import Batcher
from pipeline.engine import Engine
from pipeline.item import Coordinates
from pipeline.ports import Lane
from pipeline.slots import ThreadedDevice
from pipeline.surface import Surface
from pipeline.window import make_policy
from schemas.codec import read_result, write_frame
from schemas.frame import Encoding, FrameMessage
from schemas.result import ResultMessage
from schemas.settings import (
    BucketSettings,
    DeliverySettings,
    FlowSettings,
    HttpSettings,
    KafkaSettings,
    LifecycleSettings,
    LimitSettings,
    RouteSettings,
    Settings,
)
from tests.fakes.lane import a_lane
from tests.rig.choice import BrokerKind, broker_kind
from workers.assembly import Deliver, EnginePort, Fail, Machinery
from workers.kafka_clients import (
    AIOKafkaConsumer,
    Record,
    TopicPartition,
    TopicSpec,
    create_topics,
    make_consumer,
    make_producer,
    start_client,
    stop_client,
)
from workers.lifecycle import WorkerState
from workers.worker import Worker

Unique = Callable[[str], str]
"""The fixture `unique`: makes a name that no other test uses."""

DEADLINE_S = 180.0
"""How long anything that must happen may take, on a machine that is busy with other things."""

BUDGET_MS = 100_000
"""For what ends early when nothing is wrong."""

BUCKETS = [
    BucketSettings(name="small", max_source_pixels=5_000, height=32, width=64, max_batch=4),
    BucketSettings(name="large", max_source_pixels=50_000_000, height=64, width=96, max_batch=4),
]
SMALL, LARGE = (64, 48), (128, 96)
"""Picture sizes (width, height) of the two buckets."""


def session_ms() -> int:
    """A group session that the tests' broker allows, and that nobody loses while the machine is
    busy. The embedded broker holds a group's first member back for half of it."""
    return 6_000 if broker_kind() is BrokerKind.EMBEDDED else 60_000


def a_jpeg(size: tuple[int, int] = SMALL, grey: int = 90) -> bytes:
    width, height = size
    ok, encoded = cv2.imencode(".jpg", np.full((height, width, 3), grey, np.uint8))
    assert ok
    return encoded.tobytes()


def envelope(stream: str, seq: int, **fields: object) -> bytes:
    """A frame in the native form."""
    frame = FrameMessage(
        stream_id=stream,
        seq=seq,
        captured_at_us=0,
        encoding=Encoding.JPEG,
        data=memoryview(a_jpeg()),
    )
    return write_frame(msgspec.structs.replace(frame, **fields))


@dataclass(frozen=True)
class Sent:
    """A record to send. `key` names its stream."""

    value: bytes | None
    key: bytes | None = b"cam"
    partition: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Bench:
    """One route's topics on a broker, and the settings that go with them."""

    settings: Settings

    @property
    def kafka(self) -> KafkaSettings:
        return self.settings.kafka

    @property
    def route(self) -> RouteSettings:
        return self.settings.routes[0]

    async def send(self, *records: Sent) -> list[Coordinates]:
        """Produce in order; where each went."""
        producer = make_producer(self.kafka)
        await start_client(producer, self.kafka)
        try:
            waiting = [
                await producer.send(
                    self.route.input, r.value, r.key, partition=r.partition, headers=list(r.headers)
                )
                for r in records
            ]
            done = [await future for future in waiting]
        finally:
            await stop_client(producer)
        return [Coordinates(d.topic, d.partition, d.offset) for d in done]

    async def results(self, count: int) -> list[ResultMessage]:
        """The first `count` results, in the order of each partition."""
        return [read_result(record.value) for record in await self.read(self.route.output, count)]

    async def everything_answered(self) -> list[ResultMessage]:
        """All results that there are now."""
        return [read_result(record.value) for record in await self.everything(self.route.output)]

    async def dead_letters(self, count: int) -> list[Record]:
        return await self.read(self.route.dead_letter, count)

    async def read(self, topic: str, count: int) -> list[Record]:
        """The first `count` records of a topic; fails when they do not come."""
        records: list[Record] = []
        async with reader(self.kafka, topic) as consumer:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while len(records) < count:
                        records.append(await consumer.getone())
            except TimeoutError:
                raise AssertionError(f"{len(records)} of {count} records on {topic}") from None
        return records

    async def everything(self, topic: str) -> list[Record]:
        """All that a topic holds now. Read until nothing comes: the embedded broker's end offset
        is too low while its last batch holds several records."""
        records: list[Record] = []
        async with reader(self.kafka, topic) as consumer, asyncio.timeout(DEADLINE_S):
            partitions = consumer.assignment()
            while fetched := await consumer.getmany(*partitions, timeout_ms=1_000):
                records += [record for batch in fetched.values() for record in batch]
        return records

    async def until_committed(self, offset: int, partition: int = 0) -> None:
        """Until the group has committed exactly this."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.committed(partition) != offset:
                await asyncio.sleep(0.1)

    async def committed(self, partition: int = 0) -> int | None:
        """The group's offset of the input topic."""
        consumer = make_consumer(self.kafka)
        await start_client(consumer, self.kafka)
        try:
            consumer.assign([TopicPartition(self.route.input, partition)])
            return await consumer.committed(TopicPartition(self.route.input, partition))
        finally:
            await stop_client(consumer)


def kafka_of(session_ms: int) -> KafkaSettings:
    """Members of a group with such a session."""
    return KafkaSettings(
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=min(1_000, session_ms // 5),
        rebalance_timeout_ms=BUDGET_MS + 20_000,
    )


def mortal() -> KafkaSettings:
    """Where somebody dies and the end of the session is waited for: Kafka's own floor."""
    return kafka_of(6_000)


async def a_bench(
    broker: str,
    unique: Unique,
    *,
    partitions: int = 1,
    kafka: KafkaSettings | None = None,
    limits: LimitSettings | None = None,
    flow: FlowSettings | None = None,
    delivery: DeliverySettings | None = None,
    sample_every: int = 1,
) -> Bench:
    """New topics, a new group, and settings for both."""
    base = kafka or kafka_of(session_ms())
    route = RouteSettings(
        input=unique("in"), output=unique("out"), dead_letter=unique("dlq"),
        sample_every=sample_every, buckets=BUCKETS,
    )  # fmt: skip
    settings = Settings(
        kafka=msgspec.structs.replace(base, bootstrap_servers=broker, group_id=unique("group")),
        routes=[route],
        limits=limits or LimitSettings(),
        flow=flow or FlowSettings(),
        delivery=delivery or DeliverySettings(commit_interval_ms=100),
        lifecycle=LifecycleSettings(drain_timeout_ms=BUDGET_MS, revoke_timeout_ms=BUDGET_MS),
        http=HttpSettings(port=0),
    )
    topics = [TopicSpec(route.input, partitions), TopicSpec(route.output, partitions)]
    await create_topics(settings.kafka, [*topics, TopicSpec(route.dead_letter)])
    return Bench(settings)


def fake_machinery(settings: Settings, lane: Lane | None = None) -> Callable[[], Machinery]:
    """The real engine on a lane, by default one without pictures or weights."""
    chosen = lane or a_lane()

    def make_engine(deliver: Deliver, fail: Fail) -> EnginePort:
        surface = Surface()
        lanes = {route.name: chosen for route in settings.routes}
        return Engine(
            Batcher(make_policy(settings.window), surface),
            surface,
            ThreadedDevice(lanes),
            deliver=deliver,
            fail=fail,
        )

    models = {route.name: chosen.model.info for route in settings.routes}
    return lambda: Machinery(make_engine, models)


def a_worker(bench: Bench) -> Worker:
    """With the real engine on a lane without pictures or weights."""
    return Worker(bench.settings, fake_machinery(bench.settings))


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[Worker]:
    """A worker that has partitions; drained at the end, in order."""
    task = asyncio.ensure_future(worker.run())
    try:
        await until(lambda: bool(worker.assigned) or task.done())
        assert not task.done(), f"the worker ended with {task.result()}"
        yield worker
    finally:
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            code = await task
    assert (code, worker.state) == (0, WorkerState.STOPPED)


@asynccontextmanager
async def reader(
    kafka: KafkaSettings, topic: str, isolation: str = "read_uncommitted"
) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer at the beginning of a topic, outside any group."""
    consumer = make_consumer(
        kafka, topic, group=False, auto_offset_reset="earliest", isolation=isolation
    )
    await start_client(consumer, kafka)
    try:
        yield consumer
    finally:
        await stop_client(consumer)


async def until(happened: Callable[[], bool]) -> None:
    """Turn the event loop until it happened; fails after the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not happened():
            await asyncio.sleep(0.01)


def sources(results: Sequence[ResultMessage]) -> list[Coordinates]:
    return [Coordinates(r.source.topic, r.source.partition, r.source.offset) for r in results]
