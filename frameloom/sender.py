"""Frames into a topic: bounded in flight, each one counted as sent, failed or dropped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from functools import partial

from frameloom.claim_shelf import ClaimShelf
from frameloom.flight import Flight
from frameloom.pace import ByteRate
from frameloom.sources import SourceFrame
from frameloom.tally import Drop, Tally
from schemas.codec import write_frame, write_json_frame
from schemas.errors import TransientError
from schemas.frame import Claim, Encoding, Form, FrameMessage
from schemas.settings import MIB
from workers.kafka_clients import AIOKafkaProducer, KafkaError, MessageSizeTooLargeError

_MAX_IN_FLIGHT = 256
_MAX_IN_FLIGHT_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How frames are sent.

    Attributes:
        topic: must exist.
        fps: frames per second of each stream; 0 for as fast as the broker takes them; None for
            a video's own times, and no pacing for stills. Live sources are thinned to it.
        loop: begin anew when a source ends.
        count: at most so many frames of each stream; None for all.
        ttl_ms, interval_ms: declared in each envelope; None leaves the key out (a video's and
            `fps`'s interval are declared without asking). Not for bare pictures.
        form: native envelope, JSON with base64, or the bare picture.
        max_record_bytes: larger records are not sent and count as failed.
        bytes_per_s: of all streams together; None for no limit.
        quality: of JPEGs made here, 1..100.
        adaptive: the worst quality that a slow broker may bring about; None for a constant one.
        live_in_flight: unacknowledged records of one live stream.
        sample_every, sample_fps: declared with segments: which frames the worker answers.
        shelf: pictures go there, and records only name them; None for records that carry theirs.
    """

    topic: str
    fps: float | None = None
    loop: bool = False
    count: int | None = None
    ttl_ms: int | None = None
    interval_ms: float | None = None
    form: Form = Form.ENVELOPE
    max_record_bytes: int = 8 * MIB
    bytes_per_s: float | None = None
    quality: int = 90
    adaptive: int | None = None
    live_in_flight: int = 32
    sample_every: int | None = None
    sample_fps: float | None = None
    shelf: ClaimShelf | None = None


class Sender:
    """Sends frames with bounded frames and bytes in flight; counts what became of each.

    A frame in flight is one that the broker has not acknowledged. When too many are, `send` waits
    until some are, which is how a slow broker slows the reading of files down, and how a camera's
    buffer comes to drop frames.
    """

    def __init__(self, producer: AIOKafkaProducer, options: ProduceOptions, tally: Tally) -> None:
        self.options = options
        self.tally = tally
        self._producer = producer
        self._flying = 0
        self._flying_bytes = 0
        self._landed = asyncio.Event()
        self._rate = None if options.bytes_per_s is None else ByteRate(options.bytes_per_s)
        self._outlets: list[Outlet] = []
        self._failure: KafkaError | None = None

    def outlet(self, stream: str, *, live: bool) -> Outlet:
        """Where one stream's frames go."""
        outlet = Outlet(self, stream, live=live)
        self._outlets.append(outlet)
        return outlet

    async def settle(self, timeout_s: float) -> None:
        """Wait for everything in flight; what is not acknowledged in time counts as failed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._flying:
                    self._landed.clear()
                    await self._landed.wait()
        for outlet in self._outlets:
            outlet.lose("not acknowledged before the end")

    async def clear(self, nbytes: int, flight: Flight, most: int) -> None:
        """Wait until one more record of so many bytes may fly, of its stream and of all; it is
        counted from then on, until `freed`."""
        while (
            len(flight) >= most
            or self._flying >= _MAX_IN_FLIGHT
            or (self._flying and self._flying_bytes + nbytes > _MAX_IN_FLIGHT_BYTES)
        ):
            self._landed.clear()
            await self._landed.wait()
        self._flying += 1
        self._flying_bytes += nbytes
        try:
            if self._rate is not None:
                await asyncio.sleep(self._rate.wait_s(nbytes, time.monotonic()))
        except asyncio.CancelledError:
            self.freed(nbytes)
            raise

    async def hand_over(
        self, stream: str, value: bytes, captured_at_us: int
    ) -> asyncio.Future[object]:
        """Give a record to the client; a future of its acknowledgement.

        Raises:
            KafkaError: it takes none.
        """
        return await self._producer.send(
            self.options.topic,
            value,
            key=stream.encode(),
            timestamp_ms=captured_at_us // 1000,
        )

    def freed(self, nbytes: int) -> None:
        """A record does not fly any more."""
        self._flying -= 1
        self._flying_bytes -= nbytes
        self._landed.set()

    def note_failure(self, error: KafkaError) -> None:
        """The broker takes no records of files: the next `send` of one says so."""
        self._failure = error

    def raise_failure(self) -> None:
        """Raises:
        TransientError: an earlier record was refused.
        """
        if self._failure is not None:
            raise TransientError(
                f"the broker takes no records: {self._failure or type(self._failure).__name__}"
            ) from self._failure


class Outlet:
    """One stream's way to the topic.

    A live stream goes on when the broker is away: what was handed over and not acknowledged is
    dropped by name, and the camera's next frames are tried. Files are the same later as now, so
    their stream ends with an error instead of losing anything.
    """

    def __init__(self, sender: Sender, stream: str, *, live: bool) -> None:
        self._sender = sender
        self._stream = stream
        self._live = live
        self._flight = Flight()
        self._flying: dict[int, tuple[str, int, int]] = {}

    def delay_s(self) -> float:
        """See `Flight.delay_s`."""
        return self._flight.delay_s(time.monotonic())

    async def send(self, seq: int, frame: SourceFrame, captured_at_us: int) -> None:
        """Hand a frame to the producer, waiting for its turn.

        Raises:
            TransientError: the broker does not take records any more (files).
        """
        sender, options = self._sender, self._sender.options
        try:
            claim = await self._shelved(frame)
        except OSError as error:
            self._fail(frame.name, frame.frames, f"cannot be kept: {error.strerror}")
            return
        value = _value(options, self._stream, seq, frame, captured_at_us, claim)
        nbytes, limit = len(value), options.max_record_bytes
        if nbytes > limit:
            self._fail(frame.name, frame.frames, f"{nbytes} bytes are over the limit of {limit}")
            return
        most = options.live_in_flight if self._live else _MAX_IN_FLIGHT
        await sender.clear(nbytes, self._flight, most)
        try:
            if not self._live:
                sender.raise_failure()
            acknowledged = await sender.hand_over(self._stream, value, captured_at_us)
        except KafkaError as error:
            sender.freed(nbytes)
            self._refused(frame.name, frame.frames, error, "not sent")
            if not self._live:
                sender.raise_failure()
            return
        except BaseException:
            sender.freed(nbytes)
            raise
        ticket = self._flight.depart(time.monotonic())
        self._flying[ticket] = (frame.name, frame.frames, nbytes)
        acknowledged.add_done_callback(partial(self._land, ticket))

    async def _shelved(self, frame: SourceFrame) -> Claim | None:
        shelf = self._sender.options.shelf
        if shelf is None:
            return None
        return await asyncio.to_thread(shelf.put, frame.data, frame.encoding)

    def lose(self, why: str) -> None:
        """Give up what is in flight: the run ends."""
        for name, frames, _ in self._flying.values():
            if self._live:
                self._sender.tally.drop(self._stream, Drop.BROKER_AWAY, frames)
            else:
                self._fail(name, frames, why)
        self._flying.clear()

    def _land(self, ticket: int, acknowledged: asyncio.Future[object]) -> None:
        self._flight.land(ticket, time.monotonic())
        found = self._flying.pop(ticket, None)
        error = None if acknowledged.cancelled() else acknowledged.exception()
        if found is None:
            return  # given up before
        name, frames, nbytes = found
        self._sender.freed(nbytes)
        if acknowledged.cancelled():
            self._refused(name, frames, None, "not acknowledged")
        elif error is not None:
            self._refused(name, frames, error, "not acknowledged")
        else:
            self._sender.tally.land(self._stream, nbytes, frames)

    def _refused(self, name: str, frames: int, error: BaseException | None, what: str) -> None:
        too_large = isinstance(error, MessageSizeTooLargeError)
        if self._live and not too_large:
            self._sender.tally.drop(self._stream, Drop.BROKER_AWAY, frames)
            return
        self._fail(name, frames, f"{what}: {type(error).__name__ if error else 'cancelled'}")
        # A record that is too large says nothing about the next one; anything else does.
        if isinstance(error, KafkaError) and not too_large:
            self._sender.note_failure(error)

    def _fail(self, name: str, frames: int, why: str) -> None:
        self._sender.tally.fail(name, why, stream=self._stream, frames=frames)


def _value(
    options: ProduceOptions,
    stream: str,
    seq: int,
    frame: SourceFrame,
    captured_at_us: int,
    claim: Claim | None = None,
) -> bytes:
    if options.form is Form.BARE:
        return frame.data
    interval_us = frame.interval_us
    if options.interval_ms is not None:
        interval_us = round(options.interval_ms * 1000)
    elif options.fps:
        # A live source that is slower than asked keeps its own.
        slower_us = interval_us if frame.captured_at_us is not None else None
        interval_us = max(round(1e6 / options.fps), slower_us or 0)
    segment = frame.encoding is Encoding.MP4
    message = FrameMessage(
        stream_id=stream,
        seq=seq,
        captured_at_us=captured_at_us,
        encoding=frame.encoding,
        data=memoryview(frame.data if claim is None else b""),
        claim=claim,
        interval_us=interval_us,
        ttl_ms=options.ttl_ms,
        sample_every=options.sample_every if segment else None,
        sample_fps=options.sample_fps if segment else None,
    )
    return write_frame(message) if options.form is Form.ENVELOPE else write_json_frame(message)
