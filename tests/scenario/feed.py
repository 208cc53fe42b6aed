"""The feed: cameras that send at a steady pace, whatever becomes of the broker.

Frames of each stream change between two sizes, so that every stream's answers come from two
buckets and have to be put in order again.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from schemas.codec import write_frame
from schemas.frame import Encoding, FrameMessage
from tests.integration.kit import LARGE, SMALL, a_jpeg
from tests.scenario.stage import Stage
from workers.kafka_clients import (
    AIOKafkaProducer,
    KafkaError,
    RecordMetadata,
    make_producer,
    start_client,
    stop_client,
)

STREAMS = 12
TICK_S = 0.02
MOST_WAITING = 2_000
"""Frames sent and not acknowledged; beyond it the cameras wait."""
LEVEL = 90

Wall = Callable[[], int]


class Feed:
    """Sends the frames of `STREAMS` streams in turn.

    Args:
        stage: where to.
        producer: started.
        wall_us: the cameras' clock, Unix µs.
        ttl_ms: of every frame.
    """

    def __init__(
        self,
        stage: Stage,
        producer: AIOKafkaProducer,
        *,
        wall_us: Wall = lambda: time.time_ns() // 1000,
        ttl_ms: int | None = None,
    ) -> None:
        self._topic = stage.route.input
        self._producer = producer
        self._wall_us = wall_us
        self._ttl_ms = ttl_ms
        self._count = 0
        self._waiting: set[asyncio.Future[RecordMetadata]] = set()

    async def send(self, count: int, *, level: int = LEVEL) -> None:
        """So many frames now. A broker that is away is waited for; a frame that it does not take
        in the end is not in the log, and nobody owes it an answer."""
        for _ in range(count):
            stream, seq = f"cam-{self._count % STREAMS}", self._count // STREAMS
            self._count += 1
            await self.put(stream.encode(), self._frame(stream, seq, level))

    async def put(
        self, key: bytes | None, value: bytes | None
    ) -> asyncio.Future[RecordMetadata] | None:
        """One record, and where it will be; None for one that the broker does not take."""
        while len(self._waiting) > MOST_WAITING:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
        try:
            future = await self._producer.send(self._topic, value, key)
        except KafkaError:
            return None
        self._waiting.add(future)
        future.add_done_callback(self._done)
        return future

    async def at(self, per_second: float) -> None:
        """At this pace until cancelled."""
        due = time.monotonic()
        while True:
            await self.send(max(1, round(per_second * TICK_S)))
            due = max(due + TICK_S, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def settle(self) -> None:
        """Until the broker has, or will never have, all that was sent."""
        while self._waiting:
            await asyncio.wait(self._waiting)

    def _done(self, future: asyncio.Future[RecordMetadata]) -> None:
        self._waiting.discard(future)
        future.exception()

    def _frame(self, stream: str, seq: int, level: int) -> bytes:
        frame = FrameMessage(
            stream_id=stream,
            seq=seq,
            captured_at_us=self._wall_us(),
            encoding=Encoding.JPEG,
            data=memoryview(_picture(SMALL if seq % 3 else LARGE)),
            ttl_ms=self._ttl_ms,
            meta={"level": str(level)},
        )
        return write_frame(frame)


@functools.cache
def _picture(size: tuple[int, int]) -> bytes:
    return a_jpeg(size)


@asynccontextmanager
async def feed(
    stage: Stage,
    *,
    per_second: float = 0.0,
    wall_us: Wall = lambda: time.time_ns() // 1000,
    ttl_ms: int | None = None,
) -> AsyncIterator[Feed]:
    """A feed that runs at a pace (0: only sends what it is told to); all it sent is in the log, or
    never will be, at the end of the block."""
    producer = make_producer(stage.direct)
    await start_client(producer, stage.direct)
    try:
        feeding = Feed(stage, producer, wall_us=wall_us, ttl_ms=ttl_ms)
        pacing = asyncio.ensure_future(feeding.at(per_second)) if per_second else None
        try:
            yield feeding
        finally:
            if pacing is not None:
                pacing.cancel()
                await asyncio.wait([pacing])
        await feeding.settle()
    finally:
        await stop_client(producer)
