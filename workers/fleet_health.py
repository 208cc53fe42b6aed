"""The health of a fleet from that of its workers."""

from __future__ import annotations

import http
from collections.abc import Mapping

import msgspec

from pipeline.ports import Clock
from workers.fleet import DeviceState
from workers.fleet_probe import FleetProbe, Page
from workers.health import Health
from workers.roster import Entry, Roster

TIMEOUT_S = 0.7
"""For one answer. A worker that starts has an open port and answers only seconds later, and
whoever asks the parent may wait for a second only (Kubernetes' default)."""
SILENCE_S = 10.0
"""A worker that has answered, and then does not for so long, hangs."""


def look(roster: Roster, probe: FleetProbe, clock: Clock) -> Health:
    """Ask every worker how it is."""
    healthy, ready = probe.ask(["/healthz", "/readyz"], TIMEOUT_S)
    return health_of(roster.entries(), healthy, ready, clock())


def health_of(
    entries: Mapping[str, Entry],
    healthy: Mapping[str, Page],
    ready: Mapping[str, Page],
    now: float,
) -> Health:
    """Healthy: no worker asks to be ended, and not all are given up. One that died is not against
    it, because it is started again. Ready: one worker takes records.

    Args:
        entries: what the parent knows.
        healthy, ready: answers of the workers' own `/healthz` and `/readyz`.
        now: monotonic seconds.
    """
    details = {
        device: _details(entry, healthy.get(device), ready.get(device), now)
        for device, entry in entries.items()
    }
    lost = all(entry.state is DeviceState.GIVEN_UP for entry in entries.values())
    return Health(
        healthy=not lost and all(each["healthy"] for each in details.values()),
        ready=any(each["ready"] for each in details.values()),
        details={
            "running": sum(entry.state is DeviceState.RUNNING for entry in entries.values()),
            "devices": details,
        },
    )


def _details(
    entry: Entry, healthy: Page | None, ready: Page | None, now: float
) -> dict[str, object]:
    details: dict[str, object] = {
        "process": entry.state.value,
        "restarts": max(0, entry.starts - 1),
        "healthy": _good(healthy) if healthy else not _hangs(entry, now),
        "ready": ready is not None and _good(ready),
    }
    if entry.pid is not None:
        details["pid"] = entry.pid
        # Its own words: state, partitions, records in flight.
        details |= _words(healthy) if healthy else {"state": "no answer"}
    return details


def _hangs(entry: Entry, now: float) -> bool:
    silent_since = entry.silent_since
    return entry.answered and silent_since is not None and now - silent_since >= SILENCE_S


def _good(page: Page) -> bool:
    return page.status == http.HTTPStatus.OK


def _words(page: Page) -> dict[str, object]:
    try:
        return msgspec.json.decode(page.body, type=dict[str, object])
    except msgspec.DecodeError:
        return {}
