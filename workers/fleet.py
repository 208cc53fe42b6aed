"""The fleet: the workers of one machine, one per device, and which of them is to be started next.

WAITING → RUNNING → ENDED       in order, or for a wrong setting
   ↑         │  └─→ GIVEN_UP    died too often
   └─────────┘                  died: again after a pause
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from workers.exits import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED, EXIT_HUNG
from workers.restart import Patience, Restarts

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""What ends a fleet in order, and is passed on to its workers."""


class DeviceState(Enum):
    """Where a device's worker stands."""

    WAITING = "waiting"
    """Its next process is to be started, now or after a pause."""
    RUNNING = "running"
    ENDED = "ended"
    GIVEN_UP = "given_up"


@dataclass(slots=True)
class _Member:
    restarts: Restarts
    due_at: float
    state: DeviceState = DeviceState.WAITING
    started_at: float = 0.0
    code: int = EXIT_DONE


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a worker's process means.

    Attributes:
        state: of its device from now on.
        lived_s: how long the process lived, seconds.
        pause_s: before the next start, seconds; None without one.
        deaths: quick deaths in a row.
    """

    state: DeviceState
    lived_s: float
    pause_s: float | None
    deaths: int


class Fleet:
    """Decides; starts and signals nothing itself. Instants are monotonic seconds.

    A worker that ends with `EXIT_DONE` has been told to by somebody and stays away. `EXIT_CONFIG`
    stops the whole fleet: all have the same settings, and starting again changes nothing. Any other
    end is a death, and costs its device a pause.

    Args:
        devices: names, each once.
        patience: with each device, by itself.
        now: all are due from then on.
    """

    def __init__(self, devices: Sequence[str], patience: Patience, now: float) -> None:
        self._members = {name: _Member(Restarts(patience), now) for name in devices}
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether nothing will be started any more."""
        return self._stopping

    @property
    def running(self) -> list[str]:
        """Devices that have a process."""
        return [name for name, each in self._members.items() if each.state is DeviceState.RUNNING]

    @property
    def over(self) -> bool:
        """Whether there is no process, and there will be none."""
        alive = {DeviceState.RUNNING} if self._stopping else {
            DeviceState.RUNNING, DeviceState.WAITING,
        }  # fmt: skip
        return not any(each.state in alive for each in self._members.values())

    @property
    def next_due_at(self) -> float | None:
        """When the next process is to be started; None: none is."""
        if self._stopping:
            return None
        waiting = [each for each in self._members.values() if each.state is DeviceState.WAITING]
        return min((each.due_at for each in waiting), default=None)

    @property
    def exit_code(self) -> int:
        """The worst of the workers' last ends. From bad to good: a wrong setting, a failure or a
        signal, a call that hung, an end in order."""
        return max((each.code for each in self._members.values()), key=_severity, default=EXIT_DONE)

    def state(self, device: str) -> DeviceState:
        return self._members[device].state

    def due(self, now: float) -> list[str]:
        """Devices whose process is to be started now."""
        if self._stopping:
            return []
        return [
            name
            for name, each in self._members.items()
            if each.state is DeviceState.WAITING and each.due_at <= now
        ]

    def started(self, device: str, now: float) -> None:
        """Its process runs.

        Raises:
            RuntimeError: nobody asked for it.
        """
        member = self._members[device]
        if member.state is not DeviceState.WAITING:
            raise RuntimeError(f"{device} is {member.state.value} and cannot start")
        member.state, member.started_at = DeviceState.RUNNING, now

    def ended(self, device: str, code: int, now: float) -> Ending:
        """Its process ended, with this exit code; negative: by that signal.

        Raises:
            RuntimeError: it had none.
        """
        member = self._members[device]
        if member.state is not DeviceState.RUNNING:
            raise RuntimeError(f"{device} is {member.state.value} and has no process to end")
        lived_s, pause_s = now - member.started_at, None
        if self._stopping or code in (EXIT_DONE, EXIT_CONFIG):
            member.state, member.code = DeviceState.ENDED, self._said(code)
        else:
            pause_s = member.restarts.died(lived_s)
            if pause_s is None:
                member.state, member.code = DeviceState.GIVEN_UP, EXIT_FAILED
            else:
                member.state, member.due_at = DeviceState.WAITING, now + pause_s
        if code == EXIT_CONFIG:
            self.stop()
        return Ending(member.state, lived_s, pause_s, member.restarts.deaths)

    def stop(self) -> None:
        """Start nothing any more."""
        self._stopping = True

    def _said(self, code: int) -> int:
        """A worker that is told to end before it has taken anything in ends by the signal."""
        if self._stopping and -code in SIGNALS:
            return EXIT_DONE
        return code if code in (EXIT_DONE, EXIT_CONFIG, EXIT_HUNG) else EXIT_FAILED


def _severity(code: int) -> int:
    return (EXIT_DONE, EXIT_HUNG, EXIT_FAILED, EXIT_CONFIG).index(code)
