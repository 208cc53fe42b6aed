"""One queue: the waiting frames of one (route, bucket), and when they are to be closed.

Frames leave in order of their due instant (earliest deadline first), except that a frame never
leaves before an earlier frame of its stream: its place in the order is at least its predecessor's.
Due instants, places and expiry instants live in heaps whose stale entries are skipped when they
come to the top, so every operation is O(log n) amortised.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

from pipeline.bucket import Bucket
from pipeline.forecast import ArrivalForecast
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
    waiting: bool = True


@dataclass(slots=True)
class _StreamPlace:
    waiting: int
    last_order_at: float


class BucketQueue:
    """The waiting frames of one (route, bucket).

    Attributes:
        limit: most frames in one batch, 1 to the bucket's `max_batch`.
    """

    def __init__(self, route: str, bucket: Bucket) -> None:
        self.route = route
        self.bucket = bucket
        self.limit = bucket.max_batch
        self.forecast = ArrivalForecast()
        self._serial = 0
        self._waiting = 0
        self._order: list[tuple[float, int, Entry]] = []
        self._due: list[tuple[float, int, Entry]] = []
        self._expiry: list[tuple[float, int, Entry]] = []
        self._arrival: deque[Entry] = deque()
        self._streams: dict[str, _StreamPlace] = {}
        self._flush_by: ClosedBy | None = None
        self._flush_left = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, entry: Entry, interval_s: float | None) -> None:
        """Take in a frame whose stream's interval is `interval_s` (None: unknown)."""
        stream = entry.item.stream
        place = self._streams.get(stream)
        if place is None:
            place = self._streams[stream] = _StreamPlace(0, -math.inf)
        place.waiting += 1
        place.last_order_at = entry.order_at = max(entry.due_at, place.last_order_at)
        self._serial += 1
        self._waiting += 1
        heapq.heappush(self._order, (entry.order_at, self._serial, entry))
        heapq.heappush(self._due, (entry.due_at, self._serial, entry))
        if entry.expires_at < math.inf:
            heapq.heappush(self._expiry, (entry.expires_at, self._serial, entry))
        self._arrival.append(entry)
        self.forecast.arrived(stream, entry.item.received_at, interval_s)

    def pop(self) -> Item:
        """Take out the first frame in the order. The queue must not be empty."""
        while not self._order[0][2].waiting:
            heapq.heappop(self._order)
        return self._remove(heapq.heappop(self._order)[2])

    def pop_expired(self, now: float) -> list[Item]:
        """Take out every frame that can no longer be answered in time."""
        expired: list[Item] = []
        while self._expiry and (not self._expiry[0][2].waiting or self._expiry[0][0] <= now):
            entry = heapq.heappop(self._expiry)[2]
            if entry.waiting:
                expired.append(self._remove(entry))
        return expired

    def flush(self, closed_by: ClosedBy) -> None:
        """Everything waiting now is to leave at once, its batches closed by `closed_by`."""
        if self._waiting:
            self._flush_by, self._flush_left = closed_by, self._waiting

    @property
    def flushing(self) -> ClosedBy | None:
        """The reason of the flush under way, if any."""
        return self._flush_by

    @property
    def first_order_at(self) -> float:
        """The place of the next frame to leave; infinity when empty."""
        return _top(self._order)

    @property
    def due_at(self) -> float:
        """The earliest due instant; infinity when empty."""
        return _top(self._due)

    @property
    def due_by(self) -> ClosedBy:
        """Why the earliest due frame would close the batch. The queue must not be empty."""
        _top(self._due)
        return self._due[0][2].due_by

    @property
    def expires_at(self) -> float:
        """The earliest expiry instant; infinity when none."""
        return _top(self._expiry)

    @property
    def oldest_received_at(self) -> float:
        """When the longest-waiting frame was received; infinity when empty."""
        while self._arrival and not self._arrival[0].waiting:
            self._arrival.popleft()
        return self._arrival[0].item.received_at if self._arrival else math.inf

    def holds(self, partitions: frozenset[tuple[str, int]]) -> bool:
        """Whether a frame of one of these (topic, partition) waits here. O(n), for revokes."""
        return any(
            (entry.item.coordinates.topic, entry.item.coordinates.partition) in partitions
            for entry in self._arrival
            if entry.waiting
        )

    def _remove(self, entry: Entry) -> Item:
        entry.waiting = False
        self._waiting -= 1
        if self._flush_by is not None:
            self._flush_left -= 1
            if self._flush_left <= 0:
                self._flush_by = None
        item = entry.item
        place = self._streams[item.stream]
        place.waiting -= 1
        if not place.waiting:
            del self._streams[item.stream]
        self.forecast.left(item.stream)
        if not self._waiting:
            self._order.clear()
            self._due.clear()
            self._expiry.clear()
            self._arrival.clear()
        return item


def _top(heap: list[tuple[float, int, Entry]]) -> float:
    while heap and not heap[0][2].waiting:
        heapq.heappop(heap)
    return heap[0][0] if heap else math.inf
