"""The worker as users run it: its own process, told what to do by signals."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from frameloom.children import end, spawn
from schemas.settings import Settings, describe

START_S = 120.0
"""Importing torch and warming up, on a machine that is busy with other tests."""


class WorkerProcess:
    """`frameloom worker`, and its log as parsed lines."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def events(self) -> list[dict[str, object]]:
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def said(self, event: str, **fields: object) -> bool:
        return any(
            line["event"] == event and fields.items() <= line.items() for line in self.events()
        )

    async def until_said(self, event: str, **fields: object) -> None:
        async with asyncio.timeout(START_S):
            while not self.said(event, **fields):
                assert self._process.poll() is None, self._log.read_text()[-4_000:]
                await asyncio.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """The exit code (negative: the signal that ended it)."""
        return await asyncio.to_thread(self._process.wait, START_S)


def _frameloom_worker(config: Path) -> list[str]:
    return [sys.executable, "-m", "frameloom", "worker", "--config", str(config)]


@asynccontextmanager
async def worker_process(
    settings: Settings, folder: Path, command: Callable[[Path], list[str]] = _frameloom_worker
) -> AsyncIterator[WorkerProcess]:
    """Started, and with partitions. Whatever is left of it at the end is killed. `command` makes
    the command from the configuration file."""
    config, log = _files(settings, folder)
    with log.open("wb") as output:
        process = spawn(command(config), log=output)
        try:
            worker = WorkerProcess(process, log)
            await worker.until_said("partitions_assigned")
            yield worker
        finally:
            end(process, grace_s=0.1)


def _files(settings: Settings, folder: Path) -> tuple[Path, Path]:
    """Configuration and log of one more run."""
    number = len(list(folder.glob("*.yaml")))
    config = folder / f"worker-{number}.yaml"
    plain = describe(settings)
    if plain["lifecycle"]["journal_dir"] is None:
        plain["lifecycle"]["journal_dir"] = str(folder / "journal")
    config.write_text(yaml.safe_dump(plain))
    return config, config.with_suffix(".log")
