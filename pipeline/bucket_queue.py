"""One queue: the waiting frames of one (route, bucket), and when they are to be closed.

Frames leave in order of their due instant (earliest deadline first), except that a frame never
leaves before an earlier frame of its stream: its place in the order is at least its predecessor's.
Due instants, places and expiry instants live in heaps that name frames by a serial number, so every
operation is O(log n) amortised, and a frame that has left is held by nothing here.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from pipeline.bucket import Bucket
from pipeline.forecast import ArrivalForecast
from pipeline.instant_heap import SLACK, InstantHeap
from pipeline.item import Item
from schemas.result import ClosedBy


@dataclass(slots=True, eq=False)
class Entry:
    """A waiting item. Instants are monotonic seconds.

    Attributes:
        due_at: its wait is up, and the batch closes by `due_by`.
        expires_at: from here on it can no longer be answered in time.
        order_at: its place in the order of leaving.
    """

    item: Item
    due_at: float
    due_by: ClosedBy
    expires_at: float
    order_at: float = 0.0


@dataclass(slots=True)
class _StreamPlace:
    waiting: int
    last_order_at: float


class BucketQueue:
    """The waiting frames of one (route, bucket).

    Attributes:
        limit: most frames in one batch, 1 to the bucket's `max_batch`; the batcher sets it.
    """

    def __init__(self, route: str, bucket: Bucket) -> None:
        self.route = route
        self.bucket = bucket
        self.limit = bucket.max_batch
        self.forecast = ArrivalForecast()
        self._serial = 0
        self._waiting: dict[int, Entry] = {}
        self._order = InstantHeap(self._waiting)
        self._due = InstantHeap(self._waiting)
        self._expiry = InstantHeap(self._waiting)
        self._arrival: deque[int] = deque()
        self._dead = 0
        """No heap, nor the order of arrival, holds more entries of frames that have left."""
        self._streams: dict[str, _StreamPlace] = {}
        self._flush_by: ClosedBy | None = None
        self._flush_left = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, entry: Entry, interval_s: float | None) -> None:
        """Take in a frame whose stream's interval is `interval_s` (None: unknown)."""
        stream = entry.item.frame.stream_id
        place = self._streams.get(stream)
        if place is None:
            place = self._streams[stream] = _StreamPlace(0, -math.inf)
        place.waiting += 1
        place.last_order_at = entry.order_at = max(entry.due_at, place.last_order_at)
        self._serial += 1
        self._waiting[self._serial] = entry
        self._order.push(entry.order_at, self._serial)
        self._due.push(entry.due_at, self._serial)
        if entry.expires_at < math.inf:
            self._expiry.push(entry.expires_at, self._serial)
        self._arrival.append(self._serial)
        self.forecast.arrived(stream, entry.item.received_at, interval_s)

    def pop(self) -> Item:
        """Take out the first frame in the order. The queue must not be empty."""
        return self._remove(self._order.first)

    def pop_expired(self, now: float) -> list[Item]:
        """Take out every frame that can no longer be answered in time."""
        expired: list[Item] = []
        while self._expiry.first_at <= now:
            expired.append(self._remove(self._expiry.first))
        return expired

    def flush(self, closed_by: ClosedBy) -> None:
        """Everything waiting now is to leave at once, its batches closed by `closed_by`."""
        if self._waiting:
            self._flush_by, self._flush_left = closed_by, len(self._waiting)

    @property
    def flushing(self) -> ClosedBy | None:
        """The reason of the flush under way, if any."""
        return self._flush_by

    @property
    def first_order_at(self) -> float:
        """The place of the next frame to leave; infinity when empty."""
        return self._order.first_at

    @property
    def due_at(self) -> float:
        """The earliest due instant; infinity when empty."""
        return self._due.first_at

    @property
    def due_by(self) -> ClosedBy:
        """Why the earliest due frame would close the batch. The queue must not be empty."""
        return self._waiting[self._due.first].due_by

    @property
    def expires_at(self) -> float:
        """The earliest expiry instant; infinity when none."""
        return self._expiry.first_at

    @property
    def oldest_received_at(self) -> float:
        """When the longest-waiting frame was received; infinity when empty."""
        while self._arrival and self._arrival[0] not in self._waiting:
            self._arrival.popleft()
        return self._waiting[self._arrival[0]].item.received_at if self._arrival else math.inf

    def holds(self, partitions: frozenset[tuple[str, int]]) -> bool:
        """Whether a frame of one of these (topic, partition) waits here. O(n), for revokes."""
        return any(
            (entry.item.coordinates.topic, entry.item.coordinates.partition) in partitions
            for entry in self._waiting.values()
        )

    def _remove(self, serial: int) -> Item:
        item = self._waiting.pop(serial).item
        if self._flush_by is not None:
            self._flush_left -= 1
            if self._flush_left <= 0:
                self._flush_by = None
        stream = item.frame.stream_id
        place = self._streams[stream]
        place.waiting -= 1
        if not place.waiting:
            del self._streams[stream]
        self.forecast.left(stream)
        self._dead += 1
        if self._dead > len(self._waiting) + SLACK:
            self._sweep()
        return item

    def _sweep(self) -> None:
        """Forget the dead where they outnumber the living."""
        waiting, heaps = len(self._waiting), (self._order, self._due, self._expiry)
        for heap in heaps:
            heap.sweep()
        if len(self._arrival) > 2 * waiting + SLACK:
            self._arrival = deque(serial for serial in self._arrival if serial in self._waiting)
        self._dead = max(len(self._arrival), *map(len, heaps)) - waiting
