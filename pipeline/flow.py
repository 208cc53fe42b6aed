"""Flow: how much may be in the process at once, in items and in bytes.

A credit is taken when a record is received and given back when its answer was acknowledged, not
before: retries and dead letters need the bytes until then.

A segment of video is two kinds of bytes. Its record holds bytes, but no item, until it is settled.
Each frame of it holds an item until it is settled, and its decoded bytes until it is inferred.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.ledger import PartitionId

LOW_WATER = 0.75
"""Intake that was closed opens again at this share of the limits, so that it does not flutter
between open and closed with every single answer."""

MEAN_WEIGHT = 0.05
"""How much one record moves the running mean of record sizes."""


class Flow:
    """Credits for items and bytes. Used by one thread.

    Intake closes at either limit and opens at the low water of both. The last poll before closing
    may pass the byte limit, by one record when records are of one size: a record's size is known
    only when it is here. A record larger than the whole limit is taken when nothing else is in
    flight, so it can never block the way.

    Args:
        max_items: most records in flight, ≥ 1.
        max_bytes: most bytes of record values in flight, ≥ 1.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        if max_items < 1 or max_bytes < 1:
            raise ValueError(f"limits must be ≥ 1: {max_items} items, {max_bytes} bytes")
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items = 0
        self._bytes = 0
        self._mean_bytes = 0.0
        self._open = True

    @property
    def items(self) -> int:
        """Records in flight."""
        return self._items

    @property
    def bytes(self) -> int:
        """Bytes of record values in flight."""
        return self._bytes

    @property
    def open(self) -> bool:
        """Whether more may be taken in."""
        return self._open

    @property
    def room(self) -> int:
        """How many records to ask for: 0 when closed, else ≥ 1. Bytes count at the mean size of
        the records seen lately."""
        if not self._open:
            return 0
        room = self._max_items - self._items
        if self._mean_bytes:
            room = min(room, int((self._max_bytes - self._bytes) / self._mean_bytes))
        return max(room, 1)

    def take(self, *nbytes: int) -> None:
        """Records of so many bytes (each ≥ 0) were received."""
        for each in nbytes:
            self._learn(each)
        self._add(len(nbytes), sum(nbytes))

    def hold(self, nbytes: int) -> None:
        """A segment's record of `nbytes` ≥ 0 bytes was received."""
        self._learn(nbytes)
        self._add(0, nbytes)

    def take_frame(self, nbytes: int) -> None:
        """A frame of a segment is to be decoded, into `nbytes` ≥ 0 bytes."""
        self._add(1, nbytes)

    def fits(self, nbytes: int) -> bool:
        """Whether a frame of so many bytes may be decoded now."""
        return self._open and self._bytes + nbytes <= self._max_bytes

    def give(self, *nbytes: int) -> None:
        """Records, or frames, of so many bytes were answered durably, or abandoned with their
        epoch.

        Raises:
            ValueError: more is given than was taken.
        """
        self._remove(len(nbytes), sum(nbytes))

    def let_go(self, nbytes: int) -> None:
        """These bytes are no longer held: of a segment's record that is settled, or of a frame that
        was inferred and still holds its item.

        Raises:
            ValueError: more is given than was taken.
        """
        self._remove(0, nbytes)

    def wanted(
        self, assigned: Iterable[PartitionId], full: frozenset[PartitionId]
    ) -> list[PartitionId]:
        """Which partitions to poll: none while intake is closed, never one of the `full`."""
        if not self._open:
            return []
        return [partition for partition in assigned if partition not in full]

    def _learn(self, nbytes: int) -> None:
        weight = MEAN_WEIGHT if self._mean_bytes else 1.0
        self._mean_bytes += weight * (nbytes - self._mean_bytes)

    def _add(self, items: int, nbytes: int) -> None:
        self._items += items
        self._bytes += nbytes
        if self._items >= self._max_items or self._bytes >= self._max_bytes:
            self._open = False

    def _remove(self, items: int, nbytes: int) -> None:
        if items > self._items or nbytes > self._bytes:
            raise ValueError(f"credits given twice: {nbytes} of {self._bytes} bytes")
        self._items -= items
        self._bytes -= nbytes
        # A limit so small that its low water rounds to nothing must still open when all is done.
        low_items = self._items <= int(LOW_WATER * self._max_items)
        low_bytes = self._bytes <= int(LOW_WATER * self._max_bytes)
        if low_items and low_bytes:
            self._open = True
