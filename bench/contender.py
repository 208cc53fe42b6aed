"""Contenders: programs that do the same work in turn, each a process of its own.

A contender loads what it needs once and then waits on its standard input. For each `Order` it does
one round and says what that took. Rounds of several contenders alternate, so that whatever else
the machine does burdens all of them, and while one works the others sleep.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import IO

import msgspec
import psutil

from schemas.errors import ConfigError, FrameloomError

ROUND_S = 300.0
"""Longest time of one round."""


class ContenderError(FrameloomError):
    """A contender ended, or did not finish its round."""


class ShortRoundError(ConfigError):
    """Nothing was left to measure between a round's two edges: it needs more frames.

    Args:
        name: whose round it was.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: the round was over before it could be measured; raise --frames")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One round: answer this many frames of the input topic, from its beginning.

    Attributes:
        bootstrap: the broker.
        input, output, dead_letter: topics.
        group: a new one.
        frames: on the input topic.
        edge: what is measured begins once so many are answered, and ends while so many are not: a
            part between two instants that are alike, without the cost of beginning. 0: the whole
            round is measured.
    """

    bootstrap: str
    input: str
    output: str
    dead_letter: str
    group: str
    frames: int
    edge: int = 0


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What a round took until the last answer was acknowledged.

    Attributes:
        frames: answered; 0 where the round was over before it could be measured.
        cpu_s: processor time of the whole process, all threads, from when it joins the group:
            clients fetch ahead of the first poll.
        wall_s: by the clock, from when it has its partitions.
        ended_s: when, by the machine's monotonic clock, which all its processes share.
        note: what else is worth knowing.
        threads: thread's name → its processor seconds; threads that have ended are left out.
        beside_s: processor time of a process beside this one, the broker's: 0.0 where none was
            named.
        batches: that were done; 0 where nobody counted.
    """

    frames: int
    cpu_s: float
    wall_s: float
    ended_s: float = 0.0
    note: str = ""
    threads: dict[str, float] = {}
    beside_s: float = 0.0
    batches: int = 0

    @property
    def cpu_us(self) -> float:
        """Processor microseconds per frame."""
        return self.cpu_s / self.frames * 1e6

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / self.wall_s


class Meter:
    """Measures a round. Reads the process's own accounts, which others on the machine leave
    alone.

    Args:
        beside: id of a process whose processor time is measured, too.
    """

    def __init__(self, beside: int | None = None) -> None:
        self._beside = None if beside is None else psutil.Process(beside)
        self._beside_began = self._beside_s()
        self._threads = thread_times()
        self._began = (time.process_time(), time.perf_counter())

    def first(self) -> None:
        """The partitions are there: the clock begins."""
        self._began = (self._began[0], time.perf_counter())

    def spent(self, frames: int, note: str = "", batches: int = 0) -> Spent:
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        threads = {
            name: round(seconds - self._threads.get(name, 0.0), 4)
            for name, seconds in thread_times().items()
        }
        return Spent(
            frames=frames,
            cpu_s=cpu_s - self._began[0],
            wall_s=wall_s - self._began[1],
            ended_s=wall_s,
            note=note,
            threads=threads,
            beside_s=self._beside_s() - self._beside_began,
            batches=batches,
        )

    def _beside_s(self) -> float:
        if self._beside is None:
            return 0.0
        times = self._beside.cpu_times()
        return times.user + times.system


def thread_times() -> dict[str, float]:
    """Processor seconds of this process's live threads by name; libraries' threads together."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: dict[str, float] = {}
    for thread in psutil.Process().threads():
        name = names.get(thread.id, "native")
        found[name] = found.get(name, 0.0) + thread.user_time + thread.system_time
    return found


class Contender:
    """The parent's end of a contender. An async context manager: the process ends with it.

    Args:
        name: in tables.
        arguments: of the Python interpreter.
        environment: over this process's own.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], environment: dict[str, str] | None = None
    ) -> None:
        self.name = name
        self._arguments = arguments
        self._environment = environment or {}
        self._process: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ContenderError(f"{self.name} does not run")
        return self._process.pid

    async def __aenter__(self) -> Contender:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the exit
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env=os.environ | self._environment,
        )
        await self._line()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._log is not None:
            self._log.close()

    async def round(self, order: Order) -> Spent:
        """Have it do one round.

        Raises:
            ContenderError: it ended or takes too long; with the end of its log.
            ShortRoundError: it answered everything before it could be measured.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise ContenderError(f"{self.name} does not run")
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        await process.stdin.drain()
        spent = msgspec.json.decode(await self._line(), type=Spent)
        if not spent.frames:
            raise ShortRoundError(self.name)
        return spent

    async def _line(self) -> bytes:
        process = self._process
        if process is None or process.stdout is None:
            raise ContenderError(f"{self.name} does not run")
        try:
            async with asyncio.timeout(ROUND_S):
                line = await process.stdout.readline()
        except TimeoutError:
            raise ContenderError(f"{self.name} took more than {ROUND_S:g} s") from None
        if not line:
            raise ContenderError(f"{self.name} ended\n{self._last_words()}")
        return line

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        return self._log.read()[-2_000:].decode(errors="replace")


Side = Callable[[Order], Awaitable[Spent]]


def serve(make: Callable[[], Side]) -> None:
    """The child's end: load, say that it is ready, then do a round for every line of standard
    input."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    side = make()
    answers.write(b"ready\n")
    answers.flush()
    for line in sys.stdin.buffer:
        spent = asyncio.run(_round(side, msgspec.json.decode(line, type=Order)))
        answers.write(msgspec.json.encode(spent) + b"\n")
        answers.flush()


async def _round(side: Side, order: Order) -> Spent:
    return await side(order)
