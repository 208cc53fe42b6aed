"""A server on this machine that answers by path, and as badly as it is told to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def body(
    data: bytes, *, status: str = "200 OK", length: int | None = None, more: str = ""
) -> Answer:
    """A whole answer; `length` in place of the true one."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        said = len(data) if length is None else length
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {said}\r\n{more}\r\n".encode() + data)

    return answer


def redirect(to: str, status: str = "302 Found") -> Answer:
    return body(b"", status=status, more=f"Location: {to}\r\n")


def chunked(*chunks: bytes, end: bool = True) -> Answer:
    """A body without a length; without `end` it is never over."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in chunks:
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        while not end:
            writer.write(b"%x\r\n%b\r\n" % (65536, bytes(65536)))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    return answer


async def trickle(writer: asyncio.StreamWriter) -> None:
    """One byte of a long header after the other, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.005)


async def silent(_writer: asyncio.StreamWriter) -> None:
    """Nothing, for ever."""
    await asyncio.Event().wait()


async def reset(writer: asyncio.StreamWriter) -> None:
    """Part of an answer of 1024 bytes, and the connection is gone."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\nhalf")
    await writer.drain()
    writer.transport.abort()


async def nonsense(writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff not http at all\r\n\r\n")


class HostileServer:
    """Answers GET by path; one connection per answer.

    Attributes:
        port: where it listens on 127.0.0.1.
        paths: what it answers; a list is answered one by one, its last for ever.
        asked: how often each path was.
        requests: the head of each request.
    """

    def __init__(self) -> None:
        self.port = 1
        self.paths: dict[str, Answer | list[Answer]] = {}
        self.asked: Counter[str] = Counter()
        self.requests: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str, host: str = "store.test") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.requests.append(head)
            path = head.split(" ", 2)[1]
            self.asked[path] += 1
            answer = self.paths.get(path, body(b"", status="404 Not Found"))
            if isinstance(answer, list):
                answer = answer[min(self.asked[path], len(answer)) - 1]
            await answer(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def stop(self) -> None:
        """End every answer that does not end by itself."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def hostile_server() -> AsyncIterator[HostileServer]:
    hostile = HostileServer()
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    hostile.port = server.sockets[0].getsockname()[1]
    try:
        yield hostile
    finally:
        server.close()
        await hostile.stop()
        await server.wait_closed()
