"""Asking the workers of a fleet, all at once, over their private ports."""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pipeline.ports import Clock
from workers.roster import Roster


@dataclass(frozen=True, slots=True)
class Page:
    """What a worker answered: HTTP status and body."""

    status: int
    body: bytes


class FleetProbe:
    """Any thread may ask.

    Args:
        roster: where the workers are; told who answers.
        clock: monotonic seconds.
    """

    def __init__(self, roster: Roster, clock: Clock = time.monotonic) -> None:
        self._roster = roster
        self._clock = clock
        # Several for each worker: one that hangs must not keep those waiting who ask the others.
        most = 4 * max(1, len(roster.entries()))
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="probe")

    def ask(self, paths: Sequence[str], timeout_s: float) -> list[dict[str, Page]]:
        """For each path, the answers of those workers that have any, by device. All are asked at
        once, so it takes hardly longer than `timeout_s` seconds."""
        entries = self._roster.entries()
        asked = [
            {
                device: self._threads.submit(fetch, entry.port, path, timeout_s)
                for device, entry in entries.items()
                if entry.port is not None
            }
            for path in paths
        ]
        pages: list[dict[str, Page]] = [{} for _ in paths]
        for told, answers in zip(pages, asked, strict=True):
            for device, answer in answers.items():
                page = answer.result()
                if page is None:
                    self._roster.missed(device, entries[device], self._clock())
                else:
                    self._roster.heard(device, entries[device])
                    told[device] = page
        return pages

    def close(self) -> None:
        """Wait for answers that are on their way."""
        self._threads.shutdown(cancel_futures=True)


def fetch(port: int, path: str, timeout_s: float) -> Page | None:
    """GET from the loopback address; None without a whole answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return Page(response.status, response.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
