"""From a thread that cannot wait to the event loop that sometimes must: bounded, newest first to
stay."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from frameloom.buffer import DropOldest
from frameloom.tally import Drop


class Counted(Protocol):
    """Whatever holds frames."""

    @property
    def frames(self) -> int:
        """How many."""
        ...


Item = TypeVar("Item", bound=Counted)


@dataclass(slots=True)
class Arrivals:
    """What came since the last look.

    Attributes:
        read: frames that the source gave.
        dropped: why → frames that went no further.
    """

    read: int
    dropped: dict[Drop, int]


class Handover(Generic[Item]):
    """One thread puts, the event loop takes. Counts every frame that passes or does not.

    Args:
        max_items, max_bytes: see `DropOldest`.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._filled = asyncio.Event()
        self._buffer = DropOldest[Item](max_items, max_bytes)
        self._closed = False
        self._arrivals = Arrivals(0, {})

    def put(self, item: Item, nbytes: int) -> None:
        """Hand an item over; the oldest ones make room. From the source's thread."""
        with self._lock:
            self._arrivals.read += item.frames
            for gone in self._buffer.put(item, nbytes):
                self._drop(Drop.SLOW_BROKER, gone.frames)
        self._wake()

    def skip(self, why: Drop, frames: int = 1) -> None:
        """Count frames that go no further. From the source's thread."""
        with self._lock:
            self._arrivals.read += frames
            self._drop(why, frames)

    def close(self) -> None:
        """Nothing comes any more. From any thread."""
        with self._lock:
            self._closed = True
        self._wake()

    async def take(self) -> Item | None:
        """The oldest item; None after the last one."""
        while True:
            with self._lock:
                item, closed = self._buffer.take(), self._closed
                if item is None:
                    self._filled.clear()
            if item is not None or closed:
                return item
            await self._filled.wait()

    def give_up(self) -> None:
        """Count what is left as not sent: the run ends."""
        with self._lock:
            for gone in self._buffer.clear():
                self._drop(Drop.STOPPED, gone.frames)

    def arrivals(self) -> Arrivals:
        """What came since the last call."""
        with self._lock:
            came, self._arrivals = self._arrivals, Arrivals(0, {})
        return came

    def _drop(self, why: Drop, frames: int) -> None:
        self._arrivals.dropped[why] = self._arrivals.dropped.get(why, 0) + frames

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._filled.set)
        except RuntimeError:
            # The loop is closed: the run is over, and nobody waits.
            return
