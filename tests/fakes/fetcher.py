"""A fetcher of claims that answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from schemas.frame import Claim


class FakeFetcher:
    """Each fetch waits for `give` under its URI.

    Attributes:
        asked: URIs of fetches that had their turn, in order.
        abandoned: URIs of those that were cancelled.
        closed: whether it was closed.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.abandoned: list[str] = []
        self.closed = False
        self._waiting: dict[str, asyncio.Future[memoryview]] = {}

    async def fetch(
        self, claim: Claim, turn: Callable[[], AbstractAsyncContextManager[None]]
    ) -> memoryview:
        async with turn():
            self.asked.append(claim.uri)
            self._waiting[claim.uri] = asyncio.get_running_loop().create_future()
            try:
                return await self._waiting[claim.uri]
            except asyncio.CancelledError:
                self.abandoned.append(claim.uri)
                self._waiting.pop(claim.uri, None)
                raise

    def give(self, uri: str, got: bytes | Exception) -> None:
        """The fetch of `uri`, which has its turn, ends like this."""
        waiting = self._waiting.pop(uri)
        if isinstance(got, Exception):
            waiting.set_exception(got)
        else:
            waiting.set_result(memoryview(got))

    async def close(self) -> None:
        self.closed = True
