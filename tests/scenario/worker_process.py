"""The worker as users run it: its own process, told what to do by signals."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import psutil
import yaml

from frameloom.children import end, spawn
from schemas.settings import Settings, describe

START_S = 240.0
"""Importing torch and warming up, on a machine that is busy with other tests."""

Command = Callable[[Path], list[str]]
"""From a configuration file to the command that runs a worker on it."""


class Process(Protocol):
    """What is asked of a process. `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: signal.Signals) -> None: ...
    def kill(self) -> None: ...


class WorkerProcess:
    """A worker, and its log as parsed lines."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def rss_bytes(self) -> int:
        """Memory that it holds now."""
        return psutil.Process(self.pid).memory_info().rss

    def events(self) -> list[dict[str, object]]:
        # Its last line may be half written.
        lines = self._log.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def said(self, event: str, **fields: object) -> bool:
        return self.times_said(event, **fields) > 0

    def times_said(self, event: str, **fields: object) -> int:
        return sum(
            line["event"] == event and fields.items() <= line.items() for line in self.events()
        )

    async def until_said(self, event: str, *, times: int = 1, **fields: object) -> None:
        await self._until(lambda: self.times_said(event, **fields) >= times)

    async def until_said_any(self, events: Collection[str]) -> None:
        """Until it said one of these."""
        await self._until(lambda: any(self.said(event) for event in events))

    async def until_stopped(self) -> None:
        """Until SIGSTOP has it."""
        await self._until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)

    async def _until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(START_S):
            while True:
                # Asked first: what ends may say something last.
                running = self.running
                if happened():
                    return
                assert running, self._log.read_text()[-4_000:]
                await asyncio.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit code (negative: the signal that ended it)."""
        return await asyncio.to_thread(self._process.wait, START_S)

    async def drained(self) -> None:
        """Told to end, it must end in order."""
        self.send(signal.SIGTERM)
        code = await self.ended()
        assert code == 0, f"exit code {code}: {self._log.read_text()[-4_000:]}"


def frameloom_worker(config: Path) -> list[str]:
    return [sys.executable, "-m", "frameloom", "worker", "--config", str(config)]


@asynccontextmanager
async def worker_process(
    settings: Settings, folder: Path, command: Command = frameloom_worker
) -> AsyncIterator[WorkerProcess]:
    """Started, and with partitions. Whatever is left of it at the end is killed. `command` makes
    the command from the configuration file."""
    config, log = new_files(settings, folder)
    with log.open("wb") as output:
        async with watched(spawn(command(config), log=output), log) as worker:
            await worker.until_said("partitions_assigned")
            yield worker


@asynccontextmanager
async def watched(process: Process, log: Path) -> AsyncIterator[WorkerProcess]:
    """A process that does not outlive the block."""
    try:
        yield WorkerProcess(process, log)
    finally:
        if process.poll() is None:
            # A stopped process takes no other signal before it goes on.
            process.send_signal(signal.SIGCONT)
        end(process, grace_s=0.1)


def new_files(settings: Settings, folder: Path) -> tuple[Path, Path]:
    """Configuration and log of one more run."""
    number = len(list(folder.glob("*.yaml")))
    config = folder / f"worker-{number}.yaml"
    plain = describe(settings)
    if plain["lifecycle"]["journal_dir"] is None:
        plain["lifecycle"]["journal_dir"] = str(folder / "journal")
    config.write_text(yaml.safe_dump(plain))
    log = config.with_suffix(".log")
    log.touch()
    return config, log
