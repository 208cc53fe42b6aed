"""When will the next frame arrive? A forecast per queue, for the idle launch.

A stream is *present* while a frame of it waits in the queue. Of the streams that are not, each is
expected one interval after its last frame. A stream that does not come is held to be merely late
for a short grace; after that it is no longer active and nobody waits for it.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

GRACE_INTERVALS = 0.5
MAX_GRACE_S = 0.1
HORIZON_S = 60.0
"""An idle device does not wait for a stream whose next frame is further away than this. Producers
may declare any interval, for streams of a single frame, too: each would be remembered so long."""
SLACK = 32
"""Void expectations that are always allowed: sweeping a short heap is not worth it."""


@dataclass(slots=True)
class _Stream:
    present: int = 0
    expected_at: float = math.inf
    interval_s: float = 0.0
    version: int = 0


class ArrivalForecast:
    """Expected arrivals of the streams of one queue. All calls are O(log streams), amortised."""

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._upcoming: list[tuple[float, int, str]] = []
        self._overdue: list[tuple[float, int, str]] = []
        self._version = 0

    def arrived(self, stream: str, at: float, interval_s: float | None) -> None:
        """A frame joined the queue at instant `at`; `interval_s` None means: expect nothing."""
        self._advance(at)  # a busy queue never asks, and what was expected long ago must go
        if interval_s is not None and interval_s > HORIZON_S:
            interval_s = None
        state = self._streams.get(stream)
        if state is None:
            state = self._streams[stream] = _Stream()
        state.present += 1
        self._version += 1
        state.version = self._version  # entries that wait for this arrival are stale now
        state.interval_s = interval_s or 0.0
        state.expected_at = math.inf if interval_s is None else at + interval_s

    def left(self, stream: str) -> None:
        """A frame of the stream left the queue. The last one makes the stream expected again."""
        state = self._streams[stream]
        state.present -= 1
        if state.present:
            return
        if state.expected_at == math.inf:
            del self._streams[stream]
        else:
            heapq.heappush(self._upcoming, (state.expected_at, state.version, stream))
            self._sweep()

    def next_arrival(self, now: float) -> float:
        """The earliest instant at which an absent, active stream is expected: `now` while one is
        late, infinity when every active stream is present."""
        self._advance(now)
        if self._overdue:
            return now
        return self._upcoming[0][0] if self._upcoming else math.inf

    def next_change(self, now: float) -> float:
        """When the answer of `next_arrival` may change by the passing of time alone."""
        self._advance(now)
        overdue = self._overdue[0][0] if self._overdue else math.inf
        upcoming = self._upcoming[0][0] if self._upcoming else math.inf
        return min(overdue, upcoming)

    def _advance(self, now: float) -> None:
        while self._upcoming:
            expected_at, version, stream = self._upcoming[0]
            state = self._waiting(stream, version)
            if state is not None and expected_at > now:
                break
            heapq.heappop(self._upcoming)
            if state is not None:
                grace = min(GRACE_INTERVALS * state.interval_s, MAX_GRACE_S)
                heapq.heappush(self._overdue, (expected_at + grace, version, stream))
        while self._overdue:
            late_until, version, stream = self._overdue[0]
            state = self._waiting(stream, version)
            if state is not None and late_until > now:
                break
            heapq.heappop(self._overdue)
            if state is not None:
                del self._streams[stream]

    def _sweep(self) -> None:
        """Forget void expectations once they outnumber the streams: below one that is far away they
        would not come to the top before it."""
        if len(self._upcoming) > 2 * len(self._streams) + SLACK:
            self._upcoming = [e for e in self._upcoming if self._waiting(e[2], e[1]) is not None]
            heapq.heapify(self._upcoming)

    def _waiting(self, stream: str, version: int) -> _Stream | None:
        """The stream's state if the heap entry of `version` still speaks of it."""
        state = self._streams.get(stream)
        return state if state is not None and state.version == version else None
