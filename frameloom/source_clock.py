"""When a live source's frame was captured: its own clock, tied to ours.

A camera stamps its frames with a clock that starts anywhere and runs a little fast or slow. The
stamps tell the time between frames to the microsecond; the moment a frame arrives does not, for
it carries the network's and the decoder's jitter, but never is early. So the offset between both
clocks is the least (arrival - stamp) of the last minute or two: frames cannot arrive before they
are captured, and the quickest one says most. (The idea of NTP's clock filter, RFC 5905 section 10.)
"""

from __future__ import annotations

_WINDOW_US = 60_000_000
_JUMP_US = 2_000_000
"""A frame that would lie further from the last one's course than this begins a new timeline."""
_TRUSTED_US = 5_000_000
"""A camera's own wall clock is believed when it agrees with ours to so much; beyond it the worker
would call the stamp skewed, too."""


class SourceClock:
    """Capture times of one connection's frames, never falling. Pure: all times are given."""

    def __init__(self) -> None:
        self._least: int | None = None
        self._previous: int | None = None
        self._window_ends_us = 0
        self._last_stamp_us: int | None = None
        self._last_us: int | None = None

    def captured_at_us(
        self, stamp_us: int | None, now_us: int, camera_us: int | None = None
    ) -> int:
        """The capture time of the next frame, Unix microseconds, not after `now_us`.

        Args:
            stamp_us: the frame's presentation time on the source's clock, or None.
            now_us: when it arrived, Unix microseconds.
            camera_us: when the camera says it was captured (RTCP sender reports), or None.
        """
        if camera_us is not None and abs(now_us - camera_us) <= _TRUSTED_US:
            at_us = camera_us
        elif stamp_us is None:
            at_us = now_us
        else:
            at_us = stamp_us + self._offset_us(stamp_us, now_us)
        at_us = min(at_us, now_us)
        if self._last_us is not None:
            at_us = max(at_us, self._last_us)
        self._last_us = at_us
        return at_us

    def reconnected(self) -> None:
        """The next stamps are of another timeline; capture times still do not fall."""
        self._least = self._previous = self._last_stamp_us = None

    def _offset_us(self, stamp_us: int, now_us: int) -> int:
        if self._last_stamp_us is not None:
            step = stamp_us - self._last_stamp_us
            # Jumped, and ours did not: another timeline.
            strayed = self._least is not None and (abs(now_us - stamp_us - self._least) > _JUMP_US)
            if not -_JUMP_US <= step <= _JUMP_US and strayed:
                self.reconnected()
        self._last_stamp_us = stamp_us
        offset = now_us - stamp_us
        if self._least is None:
            self._least, self._previous = offset, None
            self._window_ends_us = now_us + _WINDOW_US
        elif now_us >= self._window_ends_us:
            self._previous, self._least = self._least, offset
            self._window_ends_us = now_us + _WINDOW_US
        self._least = min(self._least, offset)
        return self._least if self._previous is None else min(self._least, self._previous)
