"""Counts per stream, bounded: a fixed number of streams by name, all others together."""

from __future__ import annotations

import threading
from dataclasses import dataclass

OTHER = "other"
"""The name that streams without a place share."""

IDLE_S = 600.0
"""A stream silent for this long gives its place up when another needs one."""

INTERVAL_WEIGHT = 0.1
MAX_GAP_S = 60.0
"""A longer silence is a pause, not an interval."""


@dataclass(slots=True)
class StreamCounts:
    """One row.

    Attributes:
        interval_s: running mean of the time between its frames (capture time), seconds; None
            before the second frame and for `other`.
        lag_s: age of its latest frame at receipt, seconds ≥ 0; None while unknown and for `other`.
    """

    name: str
    received: int = 0
    answered: int = 0
    interval_s: float | None = None
    lag_s: float | None = None
    last_captured_us: int = 0
    last_at: float = 0.0


class StreamTable:
    """At most `places` streams by name. Counts move to `other` with a stream that loses its
    place, so the sum over all rows is exact. Written by one thread, read by any.

    Args:
        places: rows with a name of their own, ≥ 0.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._rows: dict[str, StreamCounts] = {}
        self._other = StreamCounts(OTHER)
        self._look_again_at = 0.0
        self._lock = threading.Lock()

    def receive(
        self, stream: str, captured_at_us: int | None, now: float, *, lag_s: float | None = None
    ) -> None:
        """A record of the stream came in, captured at Unix µs (None: unknown, no interval) and
        `lag_s` seconds ago."""
        with self._lock:
            row = self._rows.get(stream) or self._row(stream, now)
            row.received += 1
            row.last_at = now
            if captured_at_us is not None and row is not self._other:
                _learn_interval(row, captured_at_us)
                row.lag_s = lag_s

    def answer(self, *streams: str) -> None:
        """A record of each of these streams was settled."""
        with self._lock:
            for stream in streams:
                self._rows.get(stream, self._other).answered += 1

    def snapshot(self) -> list[StreamCounts]:
        """Copies of the rows, `other` last when it has counts."""
        with self._lock:
            rows = [*self._rows.values(), self._other]
            return [
                StreamCounts(row.name, row.received, row.answered, row.interval_s, row.lag_s)
                for row in rows
                if row.received or row.answered
            ]

    def _row(self, stream: str, now: float) -> StreamCounts:
        """For a stream that has none of its own yet."""
        if len(self._rows) >= self._places and not self._evict(now):
            return self._other
        row = self._rows[stream] = StreamCounts(stream)
        return row

    def _evict(self, now: float) -> bool:
        """Move the longest silent stream into `other`, if it has been silent long enough. The
        rows are looked through at most once a second: a newcomer must cost O(1)."""
        if not self._rows or now < self._look_again_at:
            return False
        quietest = min(self._rows.values(), key=lambda row: row.last_at)
        if now - quietest.last_at < IDLE_S:
            self._look_again_at = now + 1.0
            return False
        del self._rows[quietest.name]
        self._other.received += quietest.received
        self._other.answered += quietest.answered
        return True


def _learn_interval(row: StreamCounts, captured_at_us: int) -> None:
    gap_s = (captured_at_us - row.last_captured_us) / 1e6
    if row.last_captured_us and 0.0 < gap_s <= MAX_GAP_S:
        mean_s = row.interval_s
        row.interval_s = gap_s if mean_s is None else mean_s + INTERVAL_WEIGHT * (gap_s - mean_s)
    row.last_captured_us = captured_at_us
