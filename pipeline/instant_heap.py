"""A heap of instants whose entries may die anywhere in it.

A dead entry goes when it comes to the top. That alone would keep, for ever, those that never come
there: a queue under constant load closes its batches because they are full, and nobody asks which
frame is due. So the dead are also swept out once they outnumber the living.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sized
from typing import Protocol

SLACK = 32
"""Dead entries that are always allowed: sweeping a short heap is not worth it."""


class Living(Sized, Protocol):
    """The serials that are alive: a dict or a set of them."""

    def __contains__(self, serial: object, /) -> bool: ...


class InstantHeap:
    """Serial numbers by instant, the earliest first; at one instant the lower serial first.

    Every operation is O(log n), amortised, and never more than twice the living plus `SLACK`
    entries are kept, provided that `sweep` is called after each death.

    Args:
        living: the serials that still count; changed by its owner.
    """

    def __init__(self, living: Living) -> None:
        self._living = living
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        """Entries kept, dead ones too."""
        return len(self._heap)

    def push(self, at: float, serial: int) -> None:
        """Add a serial, which must be alive."""
        heapq.heappush(self._heap, (at, serial))

    @property
    def first_at(self) -> float:
        """The earliest instant; infinity when nothing is alive here."""
        self._drop_dead()
        return self._heap[0][0] if self._heap else math.inf

    @property
    def first(self) -> int:
        """The serial of the earliest instant. Something must be alive here."""
        self._drop_dead()
        return self._heap[0][1]

    def sweep(self) -> None:
        """Forget the dead if they outnumber the living. To be called after a death."""
        if len(self._heap) > 2 * len(self._living) + SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._living]
            heapq.heapify(self._heap)

    def _drop_dead(self) -> None:
        while self._heap and self._heap[0][1] not in self._living:
            heapq.heappop(self._heap)
