"""Segments: each is opened, and its frames are asked for one by one, as fast as credits allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipeline import metrics as m
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from pipeline.segment_thread import SegmentOrder, SegmentThread
from schemas.errors import PoisonError
from workers.segment_delivery import SegmentDelivery
from workers.tasks import Spawn
from workers.tickets import Segment


class Segments:
    """Reads segments of video into delivery. Belongs to the event loop's thread; all native work is
    the segment thread's.

    At most `max_open` are open at a time, the oldest first; each has at most one frame asked for.

    Args:
        thread: decodes.
        delivery: gives credits, and takes the frames.
        max_open: most segments open at once, ≥ 1.
        spawn: runs a segment's reading until the worker ends; an error of it ends the worker.
        metrics: for segments and their time.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        thread: SegmentThread,
        delivery: Callable[[], SegmentDelivery],
        max_open: int,
        spawn: Spawn,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._thread = thread
        self._delivery = delivery
        self._slots = asyncio.Semaphore(max_open)
        self._spawn = spawn
        self._metrics = metrics
        self._clock = clock
        self._serial = 0
        self._open = 0
        self._halted = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End the thread; True when it ended in time. Blocks: from another thread."""
        return self._thread.stop(timeout_s)

    def halt(self) -> None:
        """Take no further frame in: the worker ends, and segments stay unsettled where they are."""
        self._halted = True
        self._delivery().progress.set()

    def read(self, segment: Segment) -> None:
        """Read a segment to its end, or until its partition is gone. Never blocks."""
        self._serial += 1
        self._spawn(self._read(segment), f"segment {self._serial}")

    async def _read(self, segment: Segment) -> None:
        delivery = self._delivery()
        order = SegmentOrder(
            segment.ticket.coordinates,
            segment.message,
            segment.sampling,
            solo=segment.ticket.suspect is not None,
        )
        try:
            async with self._slots:
                if delivery.is_open(segment):
                    self._gauge(1)
                    try:
                        end = await self._frames(segment, order)
                    finally:
                        self._gauge(-1)
                        self._thread.close(order)
                    self._metrics.add(m.SEGMENTS, 1, segment.ticket.route, end)
        finally:
            delivery.end(segment)

    async def _frames(self, segment: Segment, order: SegmentOrder) -> str:
        """Every frame of it, into delivery. Returns how it ended."""
        delivery, route = self._delivery(), segment.ticket.route
        credit: int | None = None
        try:
            nbytes = await asyncio.wrap_future(self._thread.open(order))
            while await self._credit(segment, nbytes):
                credit, asked_at = nbytes, self._clock()
                frame, nbytes = await asyncio.wrap_future(self._thread.next(order))
                if self._halted:
                    return "left"
                self._metrics.observe(m.STAGE_SECONDS, self._clock() - asked_at, route, "segment")
                delivery.take_frame(segment, frame, credit)
                credit = None
                if frame.last:
                    return "read"
        except PoisonError as error:
            delivery.break_off(segment, error, credit)
            return "broken"
        return "left"

    async def _credit(self, segment: Segment, nbytes: int) -> bool:
        """Wait until a frame of so many bytes may be decoded. False when the partition is gone."""
        delivery = self._delivery()
        while delivery.is_open(segment) and not self._halted:
            delivery.progress.clear()
            if delivery.may_decode(segment, nbytes):
                return True
            await delivery.progress.wait()
        return False

    def _gauge(self, change: int) -> None:
        self._open += change
        self._metrics.set(m.OPEN_SEGMENTS, self._open)
