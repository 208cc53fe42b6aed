"""Where a video is cut into segments: at key frames, so that each can be decoded alone.

Pure. Packets come in decoding order; the cutter says what to do with each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cut(StrEnum):
    """What becomes of a packet."""

    JOIN = "join"
    """It belongs to the open segment."""
    BEGIN = "begin"
    """It ends the open segment, if there is one, and begins the next."""
    SKIP = "skip"
    """No segment is open: it cannot be decoded without what came before it."""
    OVERFLOW = "overflow"
    """The open segment would grow over the limit: it is given up whole, this packet with it."""


@dataclass(frozen=True, slots=True)
class SegmentBounds:
    """What the worker takes as one segment (`limits.*`).

    Attributes:
        max_bytes: of all its packets.
        max_frames: of any kind.
        max_s: from the first to the last, seconds.
    """

    max_bytes: int
    max_frames: int = 1_000
    max_s: float = 30.0


class SegmentCutter:
    """Begins a segment at the first key frame that comes `target_s` after the last beginning.

    A group of pictures longer than `target_s` makes segments of one group each.

    Args:
        target_s: how long a segment should be, seconds.
        bounds: what never shows a key frame must not grow for ever.
    """

    def __init__(self, target_s: float, bounds: SegmentBounds) -> None:
        self._target_s = target_s
        self._bounds = bounds
        self._began_s: float | None = None
        self._frames = 0
        self._bytes = 0

    def put(self, *, key: bool, at_s: float, nbytes: int) -> Cut:
        """Decide on the next packet.

        Args:
            key: it can be decoded alone.
            at_s: its decoding time, seconds.
            nbytes: of the packet.
        """
        if key and (self._began_s is None or self._due(at_s, self._began_s)):
            self._began_s = at_s
            self._frames, self._bytes = 1, nbytes
            return Cut.BEGIN
        if self._began_s is None:
            return Cut.SKIP
        if (
            self._bytes + nbytes > self._bounds.max_bytes
            or self._frames >= self._bounds.max_frames
            or at_s - self._began_s > self._bounds.max_s
        ):
            self._began_s = None
            return Cut.OVERFLOW
        self._frames += 1
        self._bytes += nbytes
        return Cut.JOIN

    def _due(self, at_s: float, began_s: float) -> bool:
        # A stamp that went back is another timeline, and no reason to wait for the old one.
        # Half a millisecond of grace: time bases round, and 0.9999 s is meant to be a second.
        return at_s < began_s or at_s - began_s >= self._target_s - 0.0005
