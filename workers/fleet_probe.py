"""Asking the workers of a fleet, all at once, over their private ports."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from workers.roster import Roster

TIMEOUT_S = 2.0
"""For one answer. A worker that starts has an open port, and answers only seconds later."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a worker answered: HTTP status and body."""

    status: int
    body: bytes


class FleetProbe:
    """Any thread may ask.

    Args:
        roster: where the workers are.
        timeout_s: for one answer, seconds.
    """

    def __init__(self, roster: Roster, timeout_s: float = TIMEOUT_S) -> None:
        self._roster = roster
        self._timeout_s = timeout_s
        # Two for each worker: one that hangs must not keep those waiting who ask for the others.
        most = 2 * max(1, len(roster.entries()))
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="probe")

    def ask(self, path: str) -> Mapping[str, Page]:
        """The answers of those workers that have any, by device."""
        asked = [
            (device, entry, self._threads.submit(fetch, entry.port, path, self._timeout_s))
            for device, entry in self._roster.entries().items()
            if entry.port is not None
        ]
        pages: dict[str, Page] = {}
        for device, entry, answer in asked:
            page = answer.result()
            if page is not None:
                self._roster.heard(device, entry)
                pages[device] = page
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
