"""What a live source has that is not sent yet: bounded, the oldest makes room."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class DropOldest(Generic[Item]):
    """A queue with a bound in items and in bytes. Putting never fails and never waits: it throws
    the oldest away until the new one fits. One thread at a time.

    Args:
        max_items: at least 1.
        max_bytes: one item alone may be larger.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        if max_items < 1:
            raise ValueError("a buffer holds at least one item")
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def nbytes(self) -> int:
        """Of all items."""
        return self._bytes

    def put(self, item: Item, nbytes: int) -> list[Item]:
        """Append an item; those that were thrown away for it, oldest first."""
        dropped: list[Item] = []
        while self._items and (
            len(self._items) >= self._max_items or self._bytes + nbytes > self._max_bytes
        ):
            dropped.append(self._take())
        self._items.append((item, nbytes))
        self._bytes += nbytes
        return dropped

    def take(self) -> Item | None:
        """The oldest item, or None when there is none."""
        return self._take() if self._items else None

    def clear(self) -> list[Item]:
        """Throw everything away; what it was."""
        gone = [item for item, _ in self._items]
        self._items.clear()
        self._bytes = 0
        return gone

    def _take(self) -> Item:
        item, nbytes = self._items.popleft()
        self._bytes -= nbytes
        return item
