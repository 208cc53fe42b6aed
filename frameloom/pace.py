"""When a frame may leave: at a pace that does not drift, thinned, or within so many bytes/s.

Pure: `now_s` is given, and every answer is an instant or a yes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Due:
    """When a frame is to be sent.

    Attributes:
        at_s: seconds after the start at which it may leave; None for at once.
        captured_s: the capture time it gets, seconds after the start; None for the time it leaves.
    """

    at_s: float | None
    captured_s: float | None


class Pace:
    """Due times of one stream's frames from files.

    Each due time is counted from the start, never from the frame before, so that late sleeps do
    not add up: after an hour at 25 frames/s, frame 90,000 is due at 3,600 s.

    Args:
        fps: frames per second; 0 for as fast as possible; None for the frames' own times.
    """

    def __init__(self, fps: float | None) -> None:
        self._fps = fps
        self._sent = 0
        self._offset_s = 0.0
        self._end_s = 0.0

    def next_source(self) -> None:
        """A source (or a loop) begins: its times go on where the last one ended."""
        self._offset_s = self._end_s

    def resume(self, now_s: float) -> None:
        """A source begins whose frames exist only now: they are not due in the past."""
        self._offset_s = max(self._end_s, now_s)
        if self._fps:
            self._sent = max(self._sent, int(now_s * self._fps))

    def due(self, at_s: float | None, lasts_s: float, *, segment: bool = False) -> Due:
        """When the next frame is due.

        Args:
            at_s: its own time in its source, seconds; None for stills.
            lasts_s: until the next frame, seconds; 0 where unknown.
            segment: it is a piece of video, which a camera has only once it is over.
        """
        if self._fps:
            due_s = self._sent / self._fps
            self._sent += 1
            return Due(due_s, due_s)
        if self._fps == 0 or at_s is None:
            return Due(None, None)
        captured_s = self._offset_s + at_s
        self._end_s = captured_s + lasts_s
        return Due(self._end_s if segment else captured_s, captured_s)


class Thinner:
    """Picks so many frames per second out of a faster live stream, evenly.

    Frames are picked on a grid of 1/fps: the first frame of each grid cell. A slower stream keeps
    all of its frames.
    """

    def __init__(self, fps: float) -> None:
        self._step_us = 1e6 / fps
        self._cell: int | None = None

    def wants(self, captured_at_us: int) -> bool:
        """Whether the frame is one of those to send."""
        # A tenth of a step early still counts: 30 frames/s thinned to 10 must not fall to 7.5
        # because a frame came a millisecond before its cell.
        cell = int((captured_at_us + 0.1 * self._step_us) // self._step_us)
        if self._cell is not None and cell <= self._cell:
            return False
        self._cell = cell
        return True


class ByteRate:
    """At most so many bytes per second on average, at most one second's worth at once.

    A token bucket: a record larger than the bucket goes when the bucket is full, and is paid for
    afterwards, so large records pass and the average holds.
    """

    def __init__(self, bytes_per_s: float) -> None:
        self._per_s = bytes_per_s
        self._tokens = bytes_per_s
        self._at_s: float | None = None

    def wait_s(self, nbytes: int, now_s: float) -> float:
        """Take the bytes; how long to wait before they are sent, seconds."""
        if self._at_s is not None:
            self._tokens = min(self._per_s, self._tokens + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        self._tokens -= nbytes
        return max(0.0, -self._tokens / self._per_s)
