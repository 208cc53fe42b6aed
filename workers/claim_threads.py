"""Blocking calls on threads that nobody has to wait for: name look-ups, files, object stores.

None of them can be cancelled, and a file system or a resolver may never answer. The event loop's
own executor would be used up by such calls, and joined at the end of the process; these threads
are neither. A call keeps its place among `most` until it returns, whether somebody still waits for
it or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class ClaimThreads:
    """At most so many calls at once. Belongs to the event loop's thread.

    Args:
        most: calls under way, those that nobody waits for included, ≥ 1.
    """

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)

    async def call(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. Waits for a place first; may be cancelled at any time."""
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def ended(settle: Callable[[], None]) -> None:
            self._places.release()
            if not done.done():
                settle()

        def run() -> None:
            try:
                settle = partial(done.set_result, work())
            except Exception as error:  # noqa: BLE001 (handed to who waits)
                settle = partial(done.set_exception, error)
            # A closed loop means that the worker has ended: nobody is left to be told.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended, settle)

        try:
            threading.Thread(target=run, name="claim", daemon=True).start()
        except RuntimeError:
            self._places.release()
            raise
        return await done
