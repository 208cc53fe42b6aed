"""One byte per offset of a range: how it was answered, and how often more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from schemas.result import Status

PAGE_OFFSETS = 4096
"""Offsets in a page; a page takes as many bytes, once one of its offsets was answered."""
MAX_EXTRA = 31
"""An offset's further answers are counted up to here: five bits."""

_KIND_BITS = 3
_KIND_MASK = (1 << _KIND_BITS) - 1


class Kind(IntEnum):
    """How an offset was answered. Of several answers the highest counts, so that the account
    does not depend on the order in which topics are read."""

    NONE = 0
    DEAD_LETTERED = 1
    SKIPPED = 2
    EXPIRED = 3
    OK = 4


KINDS = {Status.OK: Kind.OK, Status.EXPIRED: Kind.EXPIRED, Status.SKIPPED: Kind.SKIPPED}
"""The kind of each status."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What is known of one offset.

    Attributes:
        offset: in its partition.
        kind: how it was answered.
        extra: answers beyond the first, 0 to 31 (31 stands for more, too).
    """

    offset: int
    kind: Kind
    extra: int


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition: begin ≤ offset < end."""

    begin: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.begin <= offset < self.end

    def __len__(self) -> int:
        return max(self.end - self.begin, 0)


class OffsetMarks:
    """The marks of one partition. Memory: a page per 4096 offsets in which any was answered, so a
    sparse log costs little and a dense one a byte per record."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    @property
    def pages(self) -> int:
        """Pages in memory, each of `PAGE_OFFSETS` bytes."""
        return len(self._pages)

    def add(self, offset: int, kind: Kind) -> bool:
        """Count an answer. True when it is the offset's first."""
        number, place = divmod(offset, PAGE_OFFSETS)
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = bytearray(PAGE_OFFSETS)
        mark = page[place]
        if mark == 0:
            page[place] = kind
            return True
        extra = min((mark >> _KIND_BITS) + 1, MAX_EXTRA)
        page[place] = extra << _KIND_BITS | max(mark & _KIND_MASK, kind)
        return False

    def has(self, offset: int) -> bool:
        """Whether the offset was answered."""
        number, place = divmod(offset, PAGE_OFFSETS)
        page = self._pages.get(number)
        return page is not None and page[place] != 0

    def take(self, offset: int) -> Mark:
        """The offset's mark, which is forgotten: what is left in the end was never taken."""
        number, place = divmod(offset, PAGE_OFFSETS)
        page = self._pages.get(number)
        if page is None:
            return Mark(offset, Kind.NONE, 0)
        mark, page[place] = page[place], 0
        return _mark(offset, mark)

    def left(self) -> Iterator[Mark]:
        """Marks that nobody took, in offset order."""
        for number in sorted(self._pages):
            page = self._pages[number]
            if page.count(0) == PAGE_OFFSETS:
                continue
            for place, mark in enumerate(page):
                if mark:
                    yield _mark(number * PAGE_OFFSETS + place, mark)


def _mark(offset: int, mark: int) -> Mark:
    return Mark(offset, Kind(mark & _KIND_MASK), mark >> _KIND_BITS)
