"""Records with several answers, while not all of them are entered. Pure.

A segment of video has an answer per frame. Frames are numbered from 0, and the last one's answer,
or the dead letter of a damaged segment, says how many there are. So a record is whole once that
number is known and each number below it was seen; then nothing need be kept of it but its mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frameloom.audit_marks import Kind

MAX_FRAMES = 10_000
"""`limits.max_segment_frames` allows no more."""
MAX_OPEN = 100_000
"""Records that are not whole, kept at once. A clean log has as many as there are segments in
flight; each costs some 300 bytes."""


@dataclass(frozen=True, slots=True)
class PartKeys:
    """One answer of a record with several.

    Attributes:
        kind: what it says.
        frame: which frame it answers; None for the dead letter of a segment's damaged rest.
        frames: how many frames the record has, where the answer says it.
    """

    kind: Kind
    frame: int | None
    frames: int | None


@dataclass(slots=True)
class _Open:
    seen: int = 0
    again: int = 0
    """Frames as bits: answered, and answered more than once."""
    extra: int = 0
    frames: int | None = None
    kind: Kind = Kind.NONE
    letter: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """A record of which every frame is answered.

    Attributes:
        kind: how: dead-lettered if any part of it was, else the best of its frames.
        frames: distinct frames that were answered.
        extra: answers to a frame that was answered before.
        again: the frames that were, as text.
    """

    kind: Kind
    frames: int
    extra: int
    again: str


class PartsBook:
    """Keeps what was seen of each record until it is whole.

    Args:
        max_open: records kept at once.

    Attributes:
        unchecked: answers of records that found no place.
    """

    def __init__(self, max_open: int = MAX_OPEN) -> None:
        self._max_open = max_open
        self._open: dict[tuple[int, int], _Open] = {}
        self.unchecked = 0

    def __len__(self) -> int:
        return len(self._open)

    def holds(self, partition: int, offset: int) -> bool:
        """Whether some, but not all, of the record's answers were entered."""
        return (partition, offset) in self._open

    def add(self, partition: int, offset: int, keys: PartKeys) -> bool | None:
        """Enter an answer. True when it is the first of its frame; None without a place for it."""
        place = (partition, offset)
        entry = self._open.get(place)
        if entry is None:
            if len(self._open) >= self._max_open:
                self.unchecked += 1
                return None
            entry = self._open[place] = _Open()
        entry.kind = max(entry.kind, keys.kind)
        entry.letter = entry.letter or keys.kind is Kind.DEAD_LETTERED
        if keys.frames is not None:
            entry.frames = keys.frames
        if keys.frame is None:
            return True
        bit = 1 << keys.frame
        first = not entry.seen & bit
        entry.extra += not first
        entry.again |= 0 if first else bit
        entry.seen |= bit
        return first

    def whole(self, partition: int, offset: int) -> Whole | None:
        """The record, if every frame of it is answered; it is forgotten then."""
        entry = self._open.get((partition, offset))
        if entry is None or entry.frames is None:
            return None
        wanted = (1 << entry.frames) - 1
        if entry.seen & wanted != wanted:
            return None
        return self.close(partition, offset)

    def close(self, partition: int, offset: int) -> Whole:
        """The record as it stands: a dead letter of all of it came. It is forgotten."""
        entry = self._open.pop((partition, offset))
        kind = Kind.DEAD_LETTERED if entry.letter else entry.kind
        return Whole(kind, entry.seen.bit_count(), entry.extra, ranges(entry.again))

    def lacking(self, partition: int, offset: int) -> str:
        """What is missing of a record that is not whole, in one phrase. It is forgotten."""
        entry = self._open.pop((partition, offset))
        if entry.frames is None:
            there = f"frames {ranges(entry.seen)} are answered" if entry.seen else "no frame is"
            return f"{there}, and no answer says that they are all"
        missing = ((1 << entry.frames) - 1) & ~entry.seen
        return f"no answer to frames {ranges(missing)} of {entry.frames}"

    def left(self) -> list[tuple[int, int]]:
        """Partition and offset of every record that is not whole."""
        return sorted(self._open)


def ranges(bits: int) -> str:
    """Frames as text: `0-4, 7`."""
    return ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in _runs(bits)
    )


def _runs(bits: int) -> Iterator[tuple[int, int]]:
    at = 0
    while bits >> at:
        if not bits >> at & 1:
            at += 1
            continue
        first = at
        while bits >> at & 1:
            at += 1
        yield first, at - 1
