"""The batcher: decides when a batch is closed, with which frames, and why.

It is a pure state machine. Time comes in as `now` (monotonic seconds), the device's state as a
`DeviceView`; out come batches and expired items. It never waits, never reads a clock and never
touches a picture. The engine drives it:

    batcher.add(item, now)                    a frame was admitted
    batcher.expire(now)                       frames that can no longer make their deadline
    batcher.next(now, view) → Decision        call until it holds neither a batch nor expired items
    batcher.next_due(now, view) → instant     when to call again if nothing else happens

A batch closes by the first of: `full` (as many as one batch takes: the bucket's `max_batch`, or
fewer where more were measured to be slower; or, where the device has nothing to do, as many as
bring it to its best speed), `window` (a frame's wait is up), `deadline` (its time
to live forces it), `idle` (see `_idle_ready`), `drain` or `revoke` (told to flush).
A solo item waits for nobody: nothing else is started until the device is empty, and then it runs
as a batch of its own (`solo`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.bucket_queue import BucketQueue, Entry
from pipeline.interval import IntervalTable
from pipeline.item import Batch, Item
from pipeline.surface import Surface
from pipeline.window import WindowPolicy
from schemas.result import ClosedBy

DEADLINE_MARGIN = 1.25
"""A batch closes by `deadline` so many predicted service times before its frame's deadline, ..."""
DEADLINE_MARGIN_S = 0.005
"""... and this much earlier still, for the work around the batch."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """What the batcher may know of the device.

    Attributes:
        slot_free: a closed batch could be started at once.
        compute_idle: no batch is before or inside the model stage.
        backlog_s: predicted seconds until the batches already started have left the model.
        empty: no batch was started that has not finished, post-processing included.
    """

    slot_free: bool
    compute_idle: bool
    backlog_s: float = 0.0
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What `Batcher.next` decided: a batch to start (or None), and items that were found on the
    way to be past saving (answered `expired`)."""

    batch: Batch | None = None
    expired: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """One queue: the frames that wait in it, and the most of them that one batch takes now."""

    route: str
    bucket: str
    waiting: int
    limit: int


class Batcher:
    """Queues per (route, bucket) and the choice among them. Owned by the engine thread.

    Args:
        policy: how long a frame may wait.
        surface: predicted service times; the engine keeps it up to date.
    """

    def __init__(self, policy: WindowPolicy, surface: Surface) -> None:
        self._policy = policy
        self._surface = surface
        self._intervals: defaultdict[str, IntervalTable] = defaultdict(IntervalTable)
        self._queues: dict[tuple[str, str], BucketQueue] = {}
        self._solo: deque[Item] = deque()
        self._next_batch_id = 1

    def __len__(self) -> int:
        return len(self._solo) + sum(len(queue) for queue in self._queues.values())

    def depths(self) -> list[QueueDepth]:
        """The depth of every queue that has ever held a frame."""
        solo = Counter((item.route, item.bucket.name) for item in self._solo)
        return [
            QueueDepth(q.route, q.bucket.name, len(q) + solo[key], q.limit)
            for key, q in self._queues.items()
        ]

    def add(self, item: Item, now: float) -> None:
        """Queue an item. O(log n)."""
        queue = self._queue(item)
        interval_s = self._learn_interval(item)
        if item.solo:
            self._solo.append(item)
            return
        service_s = self._surface.service_s(item.route, item.bucket.name, len(queue) + 1)
        window_at = item.received_at + self._policy.wait_s(interval_s, service_s)
        due_at, due_by, expires_at = window_at, ClosedBy.WINDOW, math.inf
        if item.deadline_at < math.inf:
            deadline_at = item.deadline_at - self._deadline_lead_s(item)
            if deadline_at < window_at:
                due_at, due_by = max(deadline_at, now), ClosedBy.DEADLINE
            expires_at = self._expires_at(item)
        queue.add(Entry(item, due_at, due_by, expires_at), interval_s)

    def expire(self, now: float) -> list[Item]:
        """Take out the frames whose deadline can no longer be met, even alone."""
        late = [item for queue in self._queues.values() for item in queue.pop_expired(now)]
        if self._solo:
            late += [item for item in self._solo if self._expires_at(item) <= now]
            self._solo = deque(item for item in self._solo if self._expires_at(item) > now)
        return late

    def next(self, now: float, view: DeviceView) -> Decision:
        """Close at most one batch, of the queue whose first frame is due soonest."""
        if not view.slot_free:
            return Decision()
        if self._solo:
            return self._close_solo(now) if view.empty else Decision()
        chosen: BucketQueue | None = None
        closed_by = ClosedBy.WINDOW
        for queue in self._queues.values():
            reason = self._close_reason(queue, now, view)
            if reason is not None and (
                chosen is None or queue.first_order_at < chosen.first_order_at
            ):
                chosen, closed_by = queue, reason
        return Decision() if chosen is None else self._close(chosen, closed_by, now, view)

    def next_due(self, now: float, view: DeviceView) -> float:
        """The earliest instant at which `expire` or `next` may act if nothing else happens (no
        arrival, no change of the device); infinity when only an event can change anything."""
        if not self._solo:
            due = (self._queue_due(q, now, view) for q in self._queues.values())
            return min(due, default=math.inf)
        if view.slot_free and view.empty:
            return now
        waiting = [queue.expires_at for queue in self._queues.values()]
        return min([*waiting, *map(self._expires_at, self._solo)])

    def limit(self, route: str, bucket: str, most: int) -> None:
        """From now on no batch of this queue has more than `most` frames (≥ 1), whatever the
        bucket allows: the device has no memory for more."""
        self._queues[route, bucket].limit = self._worthwhile(route, bucket, most)

    def flush(
        self, closed_by: ClosedBy, partitions: frozenset[tuple[str, int]] | None = None
    ) -> None:
        """Close what waits now as soon as slots allow.

        Args:
            closed_by: DRAIN or REVOKE.
            partitions: only queues that hold a frame of these (topic, partition); None for all.
        """
        for queue in self._queues.values():
            if partitions is None or queue.holds(partitions):
                queue.flush(closed_by)

    def _queue(self, item: Item) -> BucketQueue:
        key = (item.route, item.bucket.name)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = BucketQueue(item.route, item.bucket)
            queue.limit = self._worthwhile(item.route, item.bucket.name, item.bucket.max_batch)
        return queue

    def _worthwhile(self, route: str, bucket: str, most: int) -> int:
        """At most so many frames, and no more than keep the model at its speed."""
        found = self._surface.worthwhile(route, bucket) if self._policy.idle_launch else None
        return most if found is None else min(most, found)

    def _learn_interval(self, item: Item) -> float | None:
        frame = item.frame
        if not frame.ordered:
            return None
        intervals = self._intervals[item.route]
        return intervals.observe(frame.stream_id, frame.captured_at_us, frame.interval_us)

    def _expires_at(self, item: Item) -> float:
        """From here on its deadline can no longer be met, even alone."""
        return item.deadline_at - self._surface.service_s(item.route, item.bucket.name, 1)

    def _close_solo(self, now: float) -> Decision:
        item = self._solo.popleft()
        return Decision(self._batch(self._queue(item), [item], ClosedBy.SOLO, now))

    def _deadline_lead_s(self, item: Item) -> float:
        full_s = self._surface.service_s(item.route, item.bucket.name, item.bucket.max_batch)
        return DEADLINE_MARGIN * full_s + DEADLINE_MARGIN_S

    def _close_reason(self, queue: BucketQueue, now: float, view: DeviceView) -> ClosedBy | None:
        if not len(queue):
            return None
        if queue.flushing is not None:
            return queue.flushing
        sufficed = view.compute_idle and self._suffices(queue) and now >= self._gathered_at(queue)
        if len(queue) >= queue.limit or sufficed:
            return ClosedBy.FULL
        if queue.due_at <= now:
            return queue.due_by
        if view.compute_idle and self._idle_ready(queue, now):
            return ClosedBy.IDLE
        return None

    def _suffices(self, queue: BucketQueue) -> bool:
        """Whether more frames would hardly make the device faster: a device that has nothing to do
        need not wait for them. While it is busy they gather at no cost."""
        preferred = self._surface.preferred(queue.route, queue.bucket.name)
        return self._policy.idle_launch and preferred is not None and len(queue) >= preferred

    def _gathered_at(self, queue: BucketQueue) -> float:
        return queue.oldest_received_at + self._policy.min_wait_s

    def _idle_ready(self, queue: BucketQueue, now: float) -> bool:
        """An idle device takes a batch early when waiting would bring nobody: every stream active
        in the bucket is present, or the next one is expected only after the window's end."""
        return (
            self._policy.idle_launch
            and now >= self._gathered_at(queue)
            and queue.forecast.next_arrival(now) > queue.due_at
        )

    def _close(
        self, queue: BucketQueue, closed_by: ClosedBy, now: float, view: DeviceView
    ) -> Decision:
        size = min(len(queue), queue.limit)
        service_s = self._surface.service_s(queue.route, queue.bucket.name, size)
        done_at = now + view.backlog_s + service_s
        items: list[Item] = []
        expired: list[Item] = []
        while len(queue) and len(items) < queue.limit:
            item = queue.pop()
            (items if done_at <= item.deadline_at else expired).append(item)
        return Decision(self._batch(queue, items, closed_by, now), tuple(expired))

    def _batch(
        self, queue: BucketQueue, items: Iterable[Item], closed_by: ClosedBy, now: float
    ) -> Batch | None:
        frames = tuple(items)
        if not frames:
            return None
        batch_id = self._next_batch_id
        self._next_batch_id += 1
        return Batch(batch_id, queue.route, queue.bucket, frames, closed_by, now, queue.limit)

    def _queue_due(self, queue: BucketQueue, now: float, view: DeviceView) -> float:
        if not len(queue):
            return math.inf
        if not view.slot_free:
            return queue.expires_at
        if queue.flushing is not None or len(queue) >= queue.limit:
            return now
        due_at = min(queue.due_at, queue.expires_at)
        if not (self._policy.idle_launch and view.compute_idle):
            return due_at
        waited_at = self._gathered_at(queue)
        if self._suffices(queue) or queue.forecast.next_arrival(now) > queue.due_at:
            return min(due_at, waited_at)
        return min(due_at, max(waited_at, queue.forecast.next_change(now)))
