"""Names of files on standard input, one a line, as they come."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import CancelledError as AbandonedError
from pathlib import Path
from typing import BinaryIO

from frameloom.sources import Unreadable

_WAITING = 64
"""Names read ahead. A list that comes faster waits in its pipe."""


class ListedPaths:
    """Reads a list of names until it ends. Empty lines are passed over.

    Args:
        lines: of bytes: names of files are bytes, and need not be UTF-8.
    """

    def __init__(self, lines: BinaryIO) -> None:
        self._lines = lines

    async def paths(self) -> AsyncGenerator[Path | Unreadable, None]:
        """The names, in order.

        The reading thread is left behind when the run ends first: nothing can wake it from a
        terminal that says nothing, and nobody may wait for it.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Path | None] = asyncio.Queue(_WAITING)

        def read() -> None:
            try:
                for line in self._lines:
                    name = line.rstrip(b"\r\n")
                    if name:
                        path = Path(os.fsdecode(name))
                        asyncio.run_coroutine_threadsafe(queue.put(path), loop).result()
                asyncio.run_coroutine_threadsafe(queue.put(None), loop).result()
            except (RuntimeError, AbandonedError):
                return  # the loop has ended before the list

        threading.Thread(target=read, name="list", daemon=True).start()
        while (path := await queue.get()) is not None:
            yield path
