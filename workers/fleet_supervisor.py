"""The supervisor of a fleet: one process per device, each started again when it dies."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from pipeline.ports import Clock
from workers.exits import EXIT_CONFIG, EXIT_FAILED
from workers.fleet import SIGNALS, DeviceState, Fleet
from workers.logs import Log
from workers.restart import PATIENCE, Patience
from workers.roster import Roster
from workers.supervisor import Child

KILL_AT = 3
"""The first signal drains the workers, the second hurries them, and this one kills."""


@dataclass(frozen=True, slots=True)
class Started:
    """A worker's process.

    Attributes:
        child: the process.
        port: where it serves health and metrics; None if it does not.
    """

    child: Child
    port: int | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    device: str
    code: int


class FleetSupervisor:
    """Runs the workers of a fleet. In the main thread: signals are handled there, and workers end
    with the thread that started them.

    Args:
        start: starts the worker of a device. May raise OSError, which counts as a death.
        roster: of the devices; told of starts and ends.
        log: for starts and ends.
        clock: monotonic seconds.
        patience: with each device.
    """

    def __init__(
        self,
        start: Callable[[str], Started],
        roster: Roster,
        log: Log,
        clock: Clock,
        patience: Patience = PATIENCE,
    ) -> None:
        self._start = start
        self._roster = roster
        self._log = log
        self._clock = clock
        self._fleet = Fleet(list(roster.entries()), patience, clock())
        self._children: dict[str, Child] = {}
        self._told = 0
        # Of the standard library's queues the one that a signal handler may put into.
        self._events = queue.SimpleQueue[_Ended | signal.Signals]()

    def run(self) -> int:
        """Until all workers have ended for good. Returns the exit code for this process, see
        `Fleet.exit_code`.

        SIGTERM and SIGINT are passed on to every worker; after the first, none is started.
        """
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            while not self._fleet.over:
                self._turn()
            return self._fleet.exit_code
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _turn(self) -> None:
        for device in self._fleet.due(self._clock()):
            self._begin(device)
        due_at = self._fleet.next_due_at
        timeout_s = None if due_at is None else max(0.0, due_at - self._clock())
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return
        if isinstance(event, _Ended):
            self._end(event)
        else:
            self._pass_on(event)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._events.put(signal.Signals(number))

    def _begin(self, device: str) -> None:
        self._fleet.started(device, self._clock())
        try:
            started = self._start(device)
        except OSError as error:
            self._log.error("worker_not_started", device=device, error=str(error))
            self._events.put(_Ended(device, EXIT_FAILED))
            return
        child = self._children[device] = started.child
        self._roster.started(device, child.pid, started.port)
        self._log.info("worker_started", device=device, pid=child.pid)
        threading.Thread(
            target=lambda: self._events.put(_Ended(device, child.wait())),
            name=f"wait-{device}",
            daemon=True,
        ).start()

    def _end(self, event: _Ended) -> None:
        device, code = event.device, event.code
        self._children.pop(device, None)
        stopping = self._fleet.stopping
        ending = self._fleet.ended(device, code, self._clock())
        self._roster.left(device, ending.state)
        said = {"device": device, "code": code, "lived_s": round(ending.lived_s, 1)}
        if ending.pause_s is not None:
            self._log.warning("worker_died", **said, pause_s=round(ending.pause_s, 2))
        elif ending.state is DeviceState.GIVEN_UP:
            self._log.error("supervisor_gives_up", **said, deaths=ending.deaths)
        else:
            self._log.info("worker_ended", **said)
        if code == EXIT_CONFIG and not stopping:
            self._log.error("fleet_stops", device=device, reason="a setting or a topic is wrong")
            self._send(signal.SIGTERM)

    def _pass_on(self, number: signal.Signals) -> None:
        self._fleet.stop()
        self._told += 1
        self._log.info("signal_passed_on", signal=number.name, devices=self._fleet.running)
        self._send(signal.SIGKILL if self._told >= KILL_AT else number)

    def _send(self, number: signal.Signals) -> None:
        for child in self._children.values():
            child.send_signal(number)
