"""The demo's worker: the real one, as its own process."""

from __future__ import annotations

import asyncio
import http.client
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil
import yaml

from frameloom.children import end, spawn, tail
from schemas.errors import FrameloomError
from schemas.settings import Settings

_READY_S = 180.0
_LOOK_EVERY_S = 0.2
_GRACE_S = 30.0


class WorkerError(FrameloomError):
    """The worker did not start, or did not end in order."""


class DemoWorker:
    """`frameloom worker` on a generated configuration. An async context manager: the process
    never outlives it.

    Args:
        settings: broker, group and routes; the rest is the worker's default.
        folder: exists; gets `worker.yaml` and `worker.log`.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._config = folder / "worker.yaml"
        self._log_path = folder / "worker.log"
        self._port = _free_port()
        self._settings = settings
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> DemoWorker:
        """Start it and wait until it is ready: weights loaded, partitions assigned.

        Raises:
            WorkerError: it ended or was not ready in time; with the end of its log.
        """
        self._config.write_text(self._yaml(), "utf-8")
        self._log = self._log_path.open("wb")
        command = [sys.executable, "-m", "frameloom", "worker", "--config", str(self._config)]
        self._process = spawn(command, log=self._log)
        try:
            await self._wait_ready(self._process)
        except BaseException:
            self._kill()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process is not None and self._process.poll() is None

    def cpu_s(self) -> float:
        """Processor seconds that the process took so far; 0 when it has ended."""
        if self._process is None:
            return 0.0
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    async def drain(self) -> int:
        """SIGTERM, and wait for the orderly end. Returns the exit code (negative: a signal)."""
        if self._process is None:
            raise WorkerError("the worker is not running")
        return await asyncio.to_thread(end, self._process, grace_s=_GRACE_S)

    def last_words(self) -> str:
        """The end of its log, for a message."""
        return tail(self._log_path)

    def _yaml(self) -> str:
        kafka, routes = self._settings.kafka, self._settings.routes
        content = {
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers, "group_id": kafka.group_id},
            "routes": [
                {
                    "name": route.name,
                    "input": route.input,
                    "output": route.output,
                    "dead_letter": route.dead_letter,
                    "model": route.model,
                }
                for route in routes
            ],
            "http": {"port": self._port},
            # Its broker is gone after the demo, and so are the records that a journal could name.
            "lifecycle": {"journal_dir": str(self._config.parent / "journal")},
        }
        return yaml.safe_dump(content, sort_keys=False)

    async def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        give_up_at = time.monotonic() + _READY_S
        while not await asyncio.to_thread(_is_ready, self._port):
            code = process.poll()
            if code is not None:
                raise WorkerError(f"the worker ended with {code} at its start\n{self.last_words()}")
            if time.monotonic() > give_up_at:
                raise WorkerError(
                    f"the worker was not ready in {_READY_S:g} s\n{self.last_words()}"
                )
            await asyncio.sleep(_LOOK_EVERY_S)

    def _kill(self) -> None:
        if self._process is not None:
            end(self._process, grace_s=2.0)
        if self._log is not None:
            self._log.close()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2.0)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
