"""A segment of video inside the process: which of its frames are answered, what they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

TOLERANCE_US = 1_000
"""Containers round time stamps, the coarsest of them to milliseconds."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which frames of a segment are answered.

    Attributes:
        every: every so many frames, beginning with the first, ≥ 1; ignored where `fps` is set.
        fps: so many per second, > 0, or None.
    """

    every: int = 1
    fps: float | None = None


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """What a segment may be.

    Attributes:
        max_pixels: most pixels of one frame (width × height).
        max_frames: most frames, sampled or not.
        max_us: most time from the first frame to the last, microseconds.
    """

    max_pixels: int
    max_frames: int
    max_us: int


@dataclass(frozen=True, slots=True, eq=False)
class SegmentFrame:
    """A decoded frame that is to be answered.

    Attributes:
        index: its place among all frames of the segment as they are shown, from 0.
        offset_us: from the first frame's time stamp to its own, microseconds, ≥ 0.
        width, height: as displayed, pixels.
        pixels: RGB, packed rows, width × height × 3 bytes.
        last: no further frame of the segment is to be answered, and nothing is wrong with it.
    """

    index: int
    offset_us: int
    width: int
    height: int
    pixels: memoryview
    last: bool


class Sampler:
    """Says frame by frame whether it is answered: a function of the segment alone, so that a
    record read again has the same frames.

    Args:
        sampling: which.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._every = sampling.every
        self._fps = sampling.fps
        self._due = 0

    def takes(self, index: int, offset_us: int) -> bool:
        """Whether the frame is answered. Asked once per frame, in the order of display.

        At a rate of f it is the first frame and then the first one at or after each further
        multiple of 1/f seconds, to the millisecond.
        """
        if self._fps is None:
            return index % self._every == 0
        tick = math.floor((offset_us + TOLERANCE_US) * self._fps / 1e6)
        if tick < self._due:
            return False
        self._due = tick + 1
        return True
