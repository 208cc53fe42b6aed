"""Learns each stream's interval (the time between its frames) from capture times.

The estimate is count over span of a ring of recent stamps: n stamps that span t seconds are
n - 1 intervals of t / (n - 1) each. Single late, early or bunched stamps move it little, which a
mean of differences with outlier rules would not give as simply.
"""

from __future__ import annotations

from collections import OrderedDict, deque

US = 1_000_000
STEP_DECAY = 0.95
"""What a stream's largest step shrinks by at each frame: bursts keep it up, one stall does not."""


class _Track:
    __slots__ = ("declared_us", "interval_us", "largest_step_us", "stamps")

    def __init__(self, ring: int) -> None:
        self.stamps: deque[int] = deque(maxlen=ring)
        self.declared_us: int | None = None
        self.interval_us: float | None = None
        """As estimated from the stamps, else as declared."""
        self.largest_step_us = 0.0

    def estimate(self, min_stamps: int) -> None:
        stamps = self.stamps
        count = len(stamps)
        span = stamps[-1] - stamps[0] if count >= min_stamps else 0
        self.interval_us = span / (count - 1) if span > 0 else self.declared_us


class IntervalTable:
    """The intervals of all streams of a worker, least recently seen streams forgotten first.

    Args:
        ring: stamps kept per stream.
        min_stamps: fewer stamps than this give no estimate.
        gap_intervals: a pause longer than so many intervals (of a stream that comes in bursts: so
            many of its usual pauses) starts the estimate anew.
        first_gap_us: the same while the interval is not yet known, microseconds.
        max_streams: streams remembered at once. A worker that sees more at a time sees each so
            seldom that no window is as short as its interval.
    """

    def __init__(
        self,
        *,
        ring: int = 32,
        min_stamps: int = 4,
        gap_intervals: float = 5.0,
        first_gap_us: int = 10 * US,
        max_streams: int = 10_000,
    ) -> None:
        self._ring = ring
        self._min_stamps = min_stamps
        self._gap_intervals = gap_intervals
        self._first_gap_us = first_gap_us
        self._max_streams = max_streams
        self._tracks: OrderedDict[str, _Track] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tracks)

    def observe(
        self, stream: str, captured_at_us: int, declared_us: int | None = None
    ) -> float | None:
        """Take note of a frame captured at `captured_at_us` (producer's Unix microseconds; only
        differences count). `declared_us` is the interval its producer states, if any. Returns what
        `interval_s` then says."""
        track = self._tracks.get(stream)
        if track is None:
            track = self._tracks[stream] = _Track(self._ring)
            if len(self._tracks) > self._max_streams:
                self._tracks.popitem(last=False)
        else:
            self._tracks.move_to_end(stream)
        if declared_us is not None and declared_us != track.declared_us:
            track.declared_us = declared_us
            track.estimate(self._min_stamps)
        if track.stamps:
            captured_at_us = self._fit(track, captured_at_us)
        track.stamps.append(captured_at_us)
        track.estimate(self._min_stamps)
        return None if track.interval_us is None else track.interval_us / US

    def interval_s(self, stream: str) -> float | None:
        """Seconds between the stream's frames, > 0; None while unknown."""
        track = self._tracks.get(stream)
        if track is None or track.interval_us is None:
            return None
        return track.interval_us / US

    def _fit(self, track: _Track, stamp: int) -> int:
        """The stamp to append; clears the ring where a gap (either way) ends what it measures."""
        step = stamp - track.stamps[-1]
        interval = track.interval_us
        gap = self._first_gap_us
        if interval is not None:
            gap = self._gap_intervals * max(interval, track.largest_step_us)
        if abs(step) > gap:
            track.stamps.clear()
            track.largest_step_us = 0.0
            return stamp
        track.largest_step_us = max(step, track.largest_step_us * STEP_DECAY)
        # A stamp a little out of order still counts as one more frame inside the span.
        return max(stamp, track.stamps[-1])
