"""The supervisor: a small parent that starts the worker again when it dies.

It holds nothing and decides little: which records are to blame for a death is the journal's
business, so starting again is always safe.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from pipeline.ports import Clock
from workers.exits import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED
from workers.logs import Log
from workers.restart import PATIENCE, Patience, Restarts

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Child(Protocol):
    """A process, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...
    def wait(self) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...


class Supervisor:
    """Runs a worker and its successors. In the main thread, because signals are handled there.

    Args:
        start: starts a worker. Its exit code 0 (done) and 2 (a setting is wrong) are final; any
            other, or its end by a signal, starts the next one.
        log: for starts and ends.
        clock: monotonic seconds.
        patience: see `Patience`.
    """

    def __init__(
        self,
        start: Callable[[], Child],
        log: Log,
        clock: Clock,
        patience: Patience = PATIENCE,
    ) -> None:
        self._start = start
        self._log = log
        self._clock = clock
        self._patience = patience
        self._child: Child | None = None
        self._told: signal.Signals | None = None
        self._woken = threading.Event()

    def run(self) -> int:
        """Until the worker ends for good. Returns the exit code for this process: the worker's 0
        or 2, 0 as well if the worker ended by the signal that was passed on, and 1 when it died
        too often or did not end in order.

        SIGTERM and SIGINT are passed on to the worker; after the first, no other is started.
        """
        before = {number: signal.signal(number, self._pass_on) for number in SIGNALS}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _run(self) -> int:
        restarts = Restarts(self._patience)
        while self._told is None:
            started_at = self._clock()
            code = self._live()
            lived_s = self._clock() - started_at
            if self._told is not None:
                return self._after_signal(code)
            if code in (EXIT_DONE, EXIT_CONFIG):
                return code
            pause_s = restarts.died(lived_s)
            if pause_s is None:
                self._log.error("supervisor_gives_up", deaths=restarts.deaths, code=code)
                return EXIT_FAILED
            self._log.warning(
                "worker_died", code=code, lived_s=round(lived_s, 1), pause_s=round(pause_s, 2)
            )
            self._woken.wait(pause_s)
        return EXIT_DONE

    def _live(self) -> int:
        """One worker from its start to its end. Its exit code; negative: the signal."""
        child = self._child = self._start()
        self._log.info("worker_started", pid=child.pid)
        if self._told is not None:
            # It came between the look and the start.
            child.send_signal(self._told)
        try:
            return child.wait()
        finally:
            self._child = None

    def _after_signal(self, code: int) -> int:
        if code == EXIT_DONE or -code in SIGNALS:
            # By the signal itself: it came before the worker had taken anything in.
            return EXIT_DONE
        return EXIT_FAILED

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self._told = signal.Signals(number)
        self._woken.set()
        if self._child is not None:
            self._child.send_signal(number)
