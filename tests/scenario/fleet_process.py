"""The parent of a fleet as users run it, seen from outside."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable

import psutil

from tests.scenario.worker_process import START_S, WorkerProcess


class Fleet(WorkerProcess):
    """Its log, its page and its probes."""

    def pids(self, device: str) -> list[int]:
        """Of every process that the device had, in order."""
        return [
            int(str(line["pid"]))
            for line in self.events()
            if line["event"] == "worker_started" and line["device"] == device
        ]

    def get(self, path: str) -> tuple[int, str]:
        port = next(
            int(str(line["port"])) for line in self.events() if line["event"] == "http_listening"
        )
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    async def until_page(self, path: str, shows: Callable[[str], bool]) -> tuple[int, str]:
        """The page, once it shows this: a worker may be too busy for one answer."""
        async with asyncio.timeout(START_S):
            while True:
                status, body = await asyncio.to_thread(self.get, path)
                if shows(body):
                    return status, body
                await asyncio.sleep(0.1)

    def details(self) -> dict[str, dict[str, object]]:
        """What `/readyz` says of each device."""
        return json.loads(self.get("/readyz")[1])["devices"]


def is_gone(pid: int) -> bool:
    """Whether it has ended, even if nobody has asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
