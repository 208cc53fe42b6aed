"""A camera as a stream: read on a thread of its own, taken by the event loop as it can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

import cv2

from frameloom.address import Address
from frameloom.capture import Captured
from frameloom.dial import Dial
from frameloom.handover import Arrivals, Handover
from frameloom.jpeg import camera_jpeg
from frameloom.live_reader import Arrived, LiveOptions, LiveReader, LiveState, start_reader
from frameloom.segments import Segment
from frameloom.sources import SourceFrame, Unreadable
from frameloom.tally import Drop
from pipeline.probe import ProbeLimits, probe
from schemas.errors import PoisonError
from schemas.frame import Encoding, FrameMessage
from schemas.settings import MIB, LimitSettings

_MAX_WAITING_BYTES = 192 * MIB
"""Of frames that are not encoded yet: 4K ones take 12 MB each."""
_END_S = 1.0


class LiveSource:
    """A camera. Its frames are those that the buffer still had when their turn came.

    Args:
        address: which.
        options: how it is read.
        buffer: frames kept while the broker is slow; older ones are dropped.
        limits: pictures beyond them are dropped as damaged: the worker would refuse them.
    """

    def __init__(
        self, address: Address, options: LiveOptions, *, buffer: int, limits: LimitSettings
    ) -> None:
        self._address = address
        self._options = options
        self._buffer = buffer
        self._limits = ProbeLimits(limits.max_pixels, limits.max_scans)
        self._handover: Handover[Arrived] | None = None

    @property
    def name(self) -> str:
        """What its stream is called unless the user says otherwise."""
        return self._address.name

    @property
    def total(self) -> None:
        """Nobody knows."""
        return

    def arrivals(self) -> Arrivals:
        """What came since the last call, and what was dropped of it."""
        return Arrivals(0, {}) if self._handover is None else self._handover.arrivals()

    async def frames(
        self,
        dial: Dial,
        on_drop: Callable[[Drop, int], None],
        on_state: Callable[[LiveState, str], None],
    ) -> AsyncGenerator[SourceFrame | Unreadable, None]:
        """The camera's frames until it fails for good, or the generator is closed.

        Close it explicitly (`aclosing`): the reader's thread ends with it, and what waits is
        counted as not sent.

        Args:
            dial: which frames, and how good.
            on_drop: told of frames left out here.
            on_state: told of changes of state, on the event loop.
        """
        loop = asyncio.get_running_loop()
        handover = self._handover = Handover[Arrived](self._buffer, _MAX_WAITING_BYTES)

        def report(state: LiveState, note: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens
                loop.call_soon_threadsafe(on_state, state, note)

        reader = LiveReader(self._address, self._options, handover, report)
        ended = start_reader(reader, self.name)
        number = 0
        try:
            while (arrived := await handover.take()) is not None:
                number += 1
                why_not = dial.why_not(arrived.captured_at_us)
                if isinstance(arrived.content, Captured) and why_not is not None:
                    on_drop(why_not, 1)
                    continue
                try:
                    frame = await asyncio.to_thread(
                        self._encoded, arrived, number, dial.quality, as_it_is=dial.best
                    )
                except asyncio.CancelledError:
                    on_drop(Drop.STOPPED, arrived.frames)
                    raise
                if frame is None:
                    on_drop(Drop.DAMAGED, arrived.frames)
                else:
                    yield frame
            if reader.failure is not None:
                yield Unreadable(self._address.shown, reader.failure)
        finally:
            reader.stop()
            handover.give_up()
            await asyncio.to_thread(ended, _END_S)
            # It may have handed over one more frame meanwhile.
            handover.give_up()

    def _encoded(
        self, arrived: Arrived, number: int, quality: int, *, as_it_is: bool
    ) -> SourceFrame | None:
        """The frame as it travels; None for a picture that cannot be one."""
        name = f"{self._address.shown}#{number}"
        content = arrived.content
        if isinstance(content, Segment):
            if content.data is None:
                return None
            return SourceFrame(
                name, Encoding.MP4, content.data, interval_us=arrived.interval_us,
                captured_at_us=arrived.captured_at_us, frames=content.frames,
                lasts_us=content.lasts_us,
            )  # fmt: skip
        if content.picture is None:
            return None
        try:
            data = camera_jpeg(content.picture, quality, as_it_is=as_it_is)
            if isinstance(content.picture, bytes):
                self._check(data)
        except (ValueError, cv2.error, PoisonError):
            return None
        return SourceFrame(
            name, Encoding.JPEG, data, interval_us=arrived.interval_us,
            captured_at_us=arrived.captured_at_us,
        )  # fmt: skip

    def _check(self, data: bytes) -> None:
        probe(
            FrameMessage(
                stream_id="", seq=0, captured_at_us=0, encoding=Encoding.JPEG, data=memoryview(data)
            ),
            self._limits,
        )
