"""Who fetches when: bounded in downloads, in downloads of one stream, and in bytes.

All three are first come, first served. For bytes that is what keeps them from a deadlock: an answer
may wait for an earlier one of its stream, and an earlier one never has to wait for its bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

STREAM_SHARE = 4
"""One stream has at most one in so many of the places, so that a slow camera's store leaves some to
others."""


class Turns:
    """Places for downloads. Used by one thread.

    Args:
        most: downloads at once, ≥ 1.
    """

    def __init__(self, most: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._per_stream = max(1, most // STREAM_SHARE)
        self._streams: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def of(self, stream: str) -> AsyncGenerator[None]:
        """A place for the stream, from entering to leaving."""
        places = self._join(stream)
        try:
            async with places, self._all:
                yield
        finally:
            self._leave(stream)

    def _join(self, stream: str) -> asyncio.Semaphore:
        places, users = self._streams.get(stream) or (asyncio.Semaphore(self._per_stream), 0)
        self._streams[stream] = (places, users + 1)
        return places

    def _leave(self, stream: str) -> None:
        places, users = self._streams.pop(stream)
        if users > 1:
            self._streams[stream] = (places, users - 1)


class BytesGate:
    """Bytes that downloads may hold together. Used by one thread.

    Args:
        most: how many, ≥ the largest that is asked for.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def left(self) -> int:
        """Bytes that nobody holds."""
        return self._left

    async def take(self, nbytes: int) -> None:
        """Wait until there is room for `nbytes`, after everyone who asked before."""
        if not self._waiting and nbytes <= self._left:
            self._left -= nbytes
            return
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, opened))
        try:
            await opened
        except asyncio.CancelledError:
            if opened.done() and not opened.cancelled():
                self.give(nbytes)
            else:
                # It may have been passed over already.
                with suppress(ValueError):
                    self._waiting.remove((nbytes, opened))
                self._open()
            raise

    def give(self, nbytes: int) -> None:
        """`nbytes` taken are free again."""
        self._left += nbytes
        self._open()

    def _open(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._left:
            nbytes, opened = self._waiting[0]
            self._waiting.popleft()
            if not opened.done():
                self._left -= nbytes
                opened.set_result(None)
