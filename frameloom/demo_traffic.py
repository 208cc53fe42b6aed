"""The demo's producers: every stream at its own pace, each acknowledged record noted."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

import msgspec

from frameloom.demo_broken import BROKEN_STREAM, BrokenRecord
from frameloom.demo_footage import Footage, Shot
from frameloom.demo_streams import StreamPlan
from frameloom.demo_tally import Sent
from pipeline.item import Coordinates
from schemas.codec import write_frame
from schemas.errors import TransientError
from schemas.frame import FRAME_VERSION, Encoding, Form, FrameMessage
from workers.kafka_clients import AIOKafkaProducer, KafkaError

_SETTLE_S = 20.0
_LEAST_FRAMES = 3
"""Of every stream, however slow the machine: else a slow one would show nothing."""


@dataclass(slots=True)
class Traffic:
    """What was sent so far.

    Attributes:
        sent: acknowledged records by coordinates.
        attempts: stream → records handed to the producer.
        nbytes: of acknowledged values.
        failed: records that the broker did not acknowledge.
    """

    sent: dict[Coordinates, Sent] = field(default_factory=dict[Coordinates, Sent])
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    nbytes: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Beat:
    """When a stream's frames are due: from `first_at` every `interval_s` until `stop_at`."""

    interval_s: float
    first_at: float
    stop_at: float


def interval_of(fps: float, seconds: float) -> float:
    """Seconds between a stream's frames, short enough for a few of them in the time there is."""
    return min(1.0 / fps, seconds / _LEAST_FRAMES)


class Producers:
    """Plays all streams into one topic for a while, broken records in between.

    Args:
        producer: started.
        topic: must exist.
        scale: of all nominal rates, > 0.
        traffic: filled as the broker acknowledges.
    """

    def __init__(
        self, producer: AIOKafkaProducer, topic: str, scale: float, traffic: Traffic
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._scale = scale
        self._traffic = traffic
        self._flying: set[asyncio.Future[object]] = set()

    async def play(
        self,
        plans: Sequence[StreamPlan],
        footage: Mapping[str, Footage],
        broken: Sequence[BrokenRecord],
        seconds: float,
    ) -> None:
        """Send for `seconds`, then wait for the acknowledgements.

        Raises:
            TransientError: the broker does not take records.
        """
        began_at = time.monotonic()
        stop_at = began_at + seconds
        try:
            async with asyncio.TaskGroup() as group:
                for i, plan in enumerate(plans):
                    interval_s = interval_of(plan.kind.fps * self._scale, seconds)
                    # Cameras do not tick together.
                    beat = _Beat(interval_s, began_at + interval_s * i / len(plans), stop_at)
                    group.create_task(self._play_stream(plan, footage[plan.stream], beat))
                group.create_task(self._play_broken(broken, began_at, seconds))
        except* KafkaError as errors:
            raise TransientError(f"the broker takes no records: {errors.exceptions[0]}") from errors
        if self._flying:
            await asyncio.wait(self._flying, timeout=_SETTLE_S)
        self._traffic.failed += len(self._flying)

    async def _play_stream(self, plan: StreamPlan, footage: Footage, beat: _Beat) -> None:
        encoded = _Encoder(plan, round(beat.interval_s * 1e6))
        seq = 0
        while (due_at := beat.first_at + seq * beat.interval_s) < beat.stop_at:
            await asyncio.sleep(max(due_at - time.monotonic(), 0.0))
            shot = seq % len(footage.shots)
            captured_at_us = time.time_ns() // 1000
            value = encoded.value(footage.shots[shot], seq, captured_at_us)
            await self._send(plan.stream, value, shot, captured_at_us)
            seq += 1

    async def _play_broken(
        self, broken: Sequence[BrokenRecord], began_at: float, seconds: float
    ) -> None:
        for i, record in enumerate(broken):
            due_at = began_at + seconds * (i + 1) / (len(broken) + 1)
            await asyncio.sleep(max(due_at - time.monotonic(), 0.0))
            await self._send(BROKEN_STREAM, record.value, None, time.time_ns() // 1000)

    async def _send(self, stream: str, value: bytes, shot: int | None, captured_at_us: int) -> None:
        acknowledged = await self._producer.send(
            self._topic, value, key=stream.encode(), timestamp_ms=captured_at_us // 1000
        )
        self._traffic.attempts[stream] = self._traffic.attempts.get(stream, 0) + 1
        self._flying.add(acknowledged)
        acknowledged.add_done_callback(
            partial(self._land, stream, shot, captured_at_us, len(value))
        )

    def _land(
        self,
        stream: str,
        shot: int | None,
        captured_at_us: int,
        nbytes: int,
        acknowledged: asyncio.Future[object],
    ) -> None:
        self._flying.discard(acknowledged)
        if acknowledged.cancelled() or acknowledged.exception() is not None:
            self._traffic.failed += 1
            return
        record = cast("_Acknowledged", acknowledged.result())
        coordinates = Coordinates(record.topic, record.partition, record.offset)
        self._traffic.sent[coordinates] = Sent(coordinates, stream, shot, captured_at_us)
        self._traffic.nbytes += nbytes


class _Acknowledged(Protocol):
    """What aiokafka says of a record that the broker took."""

    topic: str
    partition: int
    offset: int


class _Encoder:
    """A stream's frames as records, in the stream's form. base64 is done once per picture."""

    def __init__(self, plan: StreamPlan, interval_us: int) -> None:
        self._plan = plan
        self._interval_us = None if plan.kind.stills else interval_us
        self._base64: dict[Shot, str] = {}

    def value(self, shot: Shot, seq: int, captured_at_us: int) -> bytes:
        """The record's value for one picture."""
        match self._plan.kind.form:
            case Form.BARE:
                return shot.jpeg
            case Form.JSON:
                return self._json(shot, seq, captured_at_us)
            case Form.ENVELOPE:
                return write_frame(
                    FrameMessage(
                        stream_id=self._plan.stream,
                        seq=seq,
                        captured_at_us=captured_at_us,
                        encoding=Encoding.JPEG,
                        data=memoryview(shot.jpeg),
                        interval_us=self._interval_us,
                        ttl_ms=self._plan.kind.ttl_ms,
                    )
                )

    def _json(self, shot: Shot, seq: int, captured_at_us: int) -> bytes:
        data = self._base64.get(shot)
        if data is None:
            data = self._base64[shot] = base64.b64encode(shot.jpeg).decode()
        return msgspec.json.encode(
            {
                "v": FRAME_VERSION,
                "stream_id": self._plan.stream,
                "seq": seq,
                "captured_at_us": captured_at_us,
                "encoding": Encoding.JPEG.value,
                "interval_us": self._interval_us,
                "data": data,
            }
        )
