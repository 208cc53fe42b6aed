"""A TCP proxy between a worker and its broker, whose traffic a test may hold back or slow down."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK_BYTES = 256 * 1024


class Proxy:
    """Passes bytes from `port` to `target_port`, both on the loopback address.

    A cut holds every byte back, as a network does that loses each packet: connections stay open
    and say nothing, new ones are accepted by nobody who answers. What was held back passes when
    the cut ends, as what TCP sends again would.
    """

    def __init__(self, port: int, target_port: int) -> None:
        self._port = port
        self._target_port = target_port
        self._passing = asyncio.Event()
        self._passing.set()
        self._connections: set[asyncio.Task[None]] = set()
        self.delay_s = 0.0

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._passing.clear()

    def heal(self) -> None:
        """Let everything pass again."""
        self._passing.set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Proxy]:
        """Serve until the end of the block; then every connection is closed."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        try:
            yield self
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            if self._connections:
                await asyncio.wait(self._connections)
            # Closed connections are let go of one turn of the loop later.
            await asyncio.sleep(0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._passing.wait()
                await self._join(reader, writer)
        finally:
            writer.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes both ways until either side ends."""
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        ways = (
            asyncio.ensure_future(self._pass(reader, far_writer)),
            asyncio.ensure_future(self._pass(far_reader, writer)),
        )
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Chunk by chunk; a delay holds up each chunk and so the ones behind it."""
        while chunk := await reader.read(CHUNK_BYTES):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._passing.wait()
            writer.write(chunk)
            await writer.drain()
