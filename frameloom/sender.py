"""Frames into a topic: bounded in flight, each one counted as sent or failed."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial

import msgspec

from frameloom.sources import SourceFrame
from schemas.codec import write_frame
from schemas.errors import TransientError
from schemas.frame import FRAME_VERSION, Form, FrameMessage
from schemas.settings import MIB
from workers.kafka_clients import AIOKafkaProducer, KafkaError, MessageSizeTooLargeError

_MAX_IN_FLIGHT = 256
_MAX_IN_FLIGHT_BYTES = 64 * MIB
_NAMED_FAILURES = 20


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How frames are sent.

    Attributes:
        topic: must exist.
        fps: frames per second of each stream; 0 for as fast as the broker takes them; None for
            a video's own times, and no pacing for stills.
        loop: begin anew when a source ends.
        count: at most so many frames of each stream; None for all.
        ttl_ms, interval_ms: declared in each envelope; None leaves the key out (a video's and
            `fps`'s interval are declared without asking). Not for bare pictures.
        form: native envelope, JSON with base64, or the bare picture.
        max_record_bytes: larger records are not sent and count as failed.
    """

    topic: str
    fps: float | None = None
    loop: bool = False
    count: int | None = None
    ttl_ms: int | None = None
    interval_ms: float | None = None
    form: Form = Form.ENVELOPE
    max_record_bytes: int = 8 * MIB


@dataclass(slots=True)
class Tally:
    """What became of a run's frames. `failures` names the first ones: which → why."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def fail(self, name: str, why: str) -> None:
        """Count a frame that was not sent; the first ones are named."""
        self.failed += 1
        if len(self.failures) < _NAMED_FAILURES:
            self.failures.setdefault(name, why)


class Sender:
    """Sends frames with bounded frames and bytes in flight; counts what became of each.

    A frame in flight is one that the broker has not acknowledged. When too many are, `send` waits
    until some are, which is how a slow broker slows the reading down.
    """

    def __init__(self, producer: AIOKafkaProducer, options: ProduceOptions, tally: Tally) -> None:
        self.options = options
        self.tally = tally
        self._producer = producer
        self._flying = 0
        self._flying_bytes = 0
        self._landed = asyncio.Event()
        self._failure: KafkaError | None = None

    async def send(self, stream: str, seq: int, frame: SourceFrame, captured_at_us: int) -> None:
        """Hand a frame to the producer.

        Raises:
            TransientError: the broker does not take records any more.
        """
        value = self._value(stream, seq, frame, captured_at_us)
        limit = self.options.max_record_bytes
        if len(value) > limit:
            self.tally.fail(frame.name, f"{len(value)} bytes are over the limit of {limit}")
            return
        while self._flying >= _MAX_IN_FLIGHT or (
            self._flying and self._flying_bytes + len(value) > _MAX_IN_FLIGHT_BYTES
        ):
            self._landed.clear()
            await self._landed.wait()
        self._raise_failure()
        try:
            acknowledged = await self._producer.send(
                self.options.topic,
                value,
                key=stream.encode(),
                timestamp_ms=captured_at_us // 1000,
            )
        except KafkaError as error:
            self.tally.fail(frame.name, f"not sent: {type(error).__name__}")
            self._failure = error
            self._raise_failure()
        else:
            self._flying += 1
            self._flying_bytes += len(value)
            acknowledged.add_done_callback(partial(self._land, frame.name, len(value)))

    async def settle(self, timeout_s: float) -> None:
        """Wait for everything in flight; what is not acknowledged in time counts as failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._flying:
                    self._landed.clear()
                    await self._landed.wait()
        for _ in range(self._flying):
            self.tally.fail(self.options.topic, "not acknowledged before the end")

    def _land(self, name: str, nbytes: int, acknowledged: asyncio.Future[object]) -> None:
        self._flying -= 1
        self._flying_bytes -= nbytes
        self._landed.set()
        error = None if acknowledged.cancelled() else acknowledged.exception()
        if acknowledged.cancelled() or error is not None:
            why = type(error).__name__ if error is not None else "cancelled"
            self.tally.fail(name, f"not acknowledged: {why}")
            # A record that is too large says nothing about the next one; anything else does.
            if isinstance(error, KafkaError) and not isinstance(error, MessageSizeTooLargeError):
                self._failure = error
            return
        self.tally.sent += 1
        self.tally.sent_bytes += nbytes

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise TransientError(
                f"the broker takes no records: {self._failure or type(self._failure).__name__}"
            ) from self._failure

    def _value(self, stream: str, seq: int, frame: SourceFrame, captured_at_us: int) -> bytes:
        options = self.options
        if options.form is Form.BARE:
            return frame.data
        interval_us = frame.interval_us
        if options.interval_ms is not None:
            interval_us = round(options.interval_ms * 1000)
        elif options.fps:
            interval_us = round(1e6 / options.fps)
        message = FrameMessage(
            stream_id=stream,
            seq=seq,
            captured_at_us=captured_at_us,
            encoding=frame.encoding,
            data=memoryview(frame.data),
            interval_us=interval_us,
            ttl_ms=options.ttl_ms,
        )
        return write_frame(message) if options.form is Form.ENVELOPE else write_json_frame(message)


def write_json_frame(frame: FrameMessage) -> bytes:
    """The frame as a JSON object with base64 `data`, as simple producers send it."""
    keys: dict[str, object] = {
        "v": FRAME_VERSION,
        "stream_id": frame.stream_id,
        "seq": frame.seq,
        "captured_at_us": frame.captured_at_us,
        "encoding": frame.encoding.value,
        "data": frame.data,
    }
    optional = {"interval_us": frame.interval_us, "ttl_ms": frame.ttl_ms}
    keys.update((key, value) for key, value in optional.items() if value is not None)
    return msgspec.json.encode(keys)
