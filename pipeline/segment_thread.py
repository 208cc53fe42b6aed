"""The thread on which segments of video are demuxed and decoded, step by step.

One thread for all segments: a step is a few milliseconds of native code, and the journal has one
region for them. What asks for a frame waits for it elsewhere, and holds the credits for it.
"""

from __future__ import annotations

import gc
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from pipeline.guard import Guard
from pipeline.isolate import TRIES
from pipeline.item import Coordinates
from pipeline.journal import Stage
from pipeline.ports import SegmentDecoder, SegmentReader
from pipeline.retry import Backoff
from pipeline.segment import Sampling, SegmentFrame
from schemas.errors import PoisonError, Reason
from schemas.frame import FrameMessage

T = TypeVar("T")

log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.05, longest_s=1.0, random=random.random)
"""Between tries of a segment that finds no memory. Whoever holds it may be done soon."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentOrder:
    """One segment to be read.

    Attributes:
        coordinates: of its record, for the journal.
        segment: the message; its `data` views the record.
        sampling: which frames are answered.
        solo: it is a suspect: nobody else may be in native code with it.
    """

    coordinates: Coordinates
    segment: FrameMessage
    sampling: Sampling
    solo: bool = False


class _Reading:
    """An order under way. Belongs to the segment thread."""

    def __init__(self, order: SegmentOrder, decoder: SegmentDecoder, guard: Guard) -> None:
        self._order = order
        self._decoder = decoder
        self._guard = guard
        self._reader: SegmentReader | None = None
        self._given = 0

    def open(self) -> int:
        """Open it; about how many bytes its first frame takes."""
        return self._with_memory(lambda reader: reader.frame_bytes)

    def next(self) -> tuple[SegmentFrame, int]:
        """The next frame that is to be answered, and about how many bytes the one after takes.

        Raises:
            PoisonError: there is none, and why.
        """
        frame, nbytes = self._with_memory(lambda reader: (self._read(reader), reader.frame_bytes))
        self._given += 1
        return frame, nbytes

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            with self._guard.inside(Stage.SEGMENT, (self._order,)):
                reader.close()

    def _read(self, reader: SegmentReader) -> SegmentFrame:
        while True:
            with self._guard.inside(Stage.SEGMENT, (self._order,)):
                frame = reader.step()
            if frame is not None:
                return frame

    def _with_memory(self, work: Callable[[SegmentReader], T]) -> T:
        """Do it; where memory runs out, begin the segment anew, after a pause.

        Raises:
            PoisonError: of the segment; also when it finds no memory in the end. Others go on.
        """
        for failures in range(1, TRIES + 1):
            try:
                return work(self._reader or self._reopened())
            except MemoryError as error:
                log.warning("a segment ran out of memory: %s", error)
            # Out here the error is gone, and with it the frames that kept what was taken.
            self.close()
            gc.collect()
            time.sleep(BACKOFF.pause_s(failures))
        raise PoisonError(
            Reason.INTERNAL_ERROR, f"found no memory in {TRIES} tries", stage=Stage.SEGMENT.value
        )

    def _reopened(self) -> SegmentReader:
        """A reader that stands where the last one did: the frames are the same every time."""
        with self._guard.inside(Stage.SEGMENT, (self._order,)):
            reader = self._decoder.open(self._order.segment, self._order.sampling)
        self._reader = reader
        for _ in range(self._given):
            self._read(reader)
        return reader


class SegmentThread:
    """Runs orders' steps one after the other, as they are asked for. Any thread may ask.

    Args:
        decoder: this thread's alone.
        guard: stands around every native call.
    """

    def __init__(self, decoder: SegmentDecoder, guard: Guard) -> None:
        self._decoder = decoder
        self._guard = guard
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._readings: dict[SegmentOrder, _Reading] = {}
        self._thread = threading.Thread(target=self._run, name="segments", daemon=True)

    def start(self) -> None:
        """Take work from now on."""
        self._thread.start()

    def open(self, order: SegmentOrder) -> Future[int]:
        """Open a segment; see `_Reading.open`. A PoisonError is the future's."""
        self._readings[order] = reading = _Reading(order, self._decoder, self._guard)
        return self._ask(reading.open)

    def next(self, order: SegmentOrder) -> Future[tuple[SegmentFrame, int]]:
        """Ask for the next frame; see `_Reading.next`. A PoisonError is the future's."""
        return self._ask(self._readings[order].next)

    def close(self, order: SegmentOrder) -> Future[None]:
        """Let a segment go, after what was asked of it before."""
        return self._ask(self._readings.pop(order).close)

    def stop(self, timeout_s: float) -> bool:
        """End after what was asked for. True when the thread ended in time; a native call that
        hangs can keep it."""
        if self._thread.ident is None:
            return True
        self._inbox.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _ask(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - whoever asked decides what it means
                future.set_exception(error)

        self._inbox.put(run)
        return future

    def _run(self) -> None:
        while (work := self._inbox.get()) is not None:
            work()
