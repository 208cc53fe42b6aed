"""The roster: what the parent of a fleet knows of its workers, for those who ask it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from workers.fleet import DeviceState


@dataclass(frozen=True, slots=True)
class Entry:
    """One device's worker.

    Attributes:
        state: where it stands.
        starts: processes so far.
        pid: of its process; None without one.
        port: on the loopback address, where the process serves health and metrics; None without.
        answered: whether this process has answered there.
        silent_since: when it was first asked in vain since, monotonic seconds; None: it answers.
    """

    state: DeviceState = DeviceState.WAITING
    starts: int = 0
    pid: int | None = None
    port: int | None = None
    answered: bool = False
    silent_since: float | None = None


class Roster:
    """For any thread. Entries are replaced, never changed."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._entries = {device: Entry() for device in devices}

    def entries(self) -> Mapping[str, Entry]:
        """All as they are now, in the order of the devices."""
        with self._lock:
            return dict(self._entries)

    def started(self, device: str, pid: int, port: int | None) -> None:
        """A process of its own runs."""
        with self._lock:
            starts = self._entries[device].starts + 1
            self._entries[device] = Entry(DeviceState.RUNNING, starts, pid, port)

    def left(self, device: str, state: DeviceState) -> None:
        """Its process is gone."""
        with self._lock:
            self._entries[device] = Entry(state, self._entries[device].starts)

    def heard(self, device: str, entry: Entry) -> None:
        """The process that was found in `entry` has answered."""
        self._note(device, entry, answered=True, silent_since=None)

    def missed(self, device: str, entry: Entry, now: float) -> None:
        """The process that was found in `entry` was asked in vain."""
        if entry.silent_since is None:
            self._note(device, entry, answered=entry.answered, silent_since=now)

    def _note(
        self, device: str, entry: Entry, *, answered: bool, silent_since: float | None
    ) -> None:
        with self._lock:
            present = self._entries[device]
            # It may have died since, and have a successor.
            if present.pid == entry.pid:
                self._entries[device] = replace(
                    present, answered=answered or present.answered, silent_since=silent_since
                )
