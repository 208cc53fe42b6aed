"""SIGTERM and SIGINT: the first drains, the second hurries, the third ends where it stands."""

from __future__ import annotations

import atexit
import contextlib
import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from workers.exits import EXIT_FAILED
from workers.fleet import SIGNALS
from workers.logs import Log

LEAVE_S = 2.0
"""How long a hurried worker that holds nothing may take to commit and to leave its group."""
SAY_S = 0.5
"""How long the last line may take: whoever reads the log may have stopped."""


class Hurried(Protocol):
    """What is asked of a worker, from any thread."""

    @property
    def unsettled(self) -> int: ...
    @property
    def in_group(self) -> bool: ...


class StopSignals:
    """What a worker's process makes of signals. Made and installed in the main thread, once in a
    process. Handlers of our own from the start to the end: those of the event loop are gone when
    it closes, and a signal after that would end the process by itself.

    A second signal ends the process with `EXIT_FAILED` and one line, `hurried`: at once while
    records are unsettled, or before the group was joined. With nothing unsettled the worker may go
    on leaving the group, for `LEAVE_S` at most: a member that does not leave keeps its partitions
    until the broker misses it. Signals that come while the interpreter ends change nothing.

    Args:
        log: for that line.
        exit_now: ends the process at once with a code.
    """

    def __init__(self, log: Log, exit_now: Callable[[int], None]) -> None:
        self._log = log
        self._exit_now = exit_now
        self._told = 0
        # May be put into from a handler, whatever it interrupted; events and locks may not.
        self._hurry: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._drain: Callable[[], object] | None = None
        self._worker: Hurried | None = None
        self._thread = threading.Thread(target=self._wait, name="hurry", daemon=True)

    def install(self) -> None:
        """Take the place of the process's handlers."""
        self._thread.start()
        atexit.register(self._exits)
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def attach(self, worker: Hurried, drain: Callable[[], object]) -> None:
        """From now on, signals are this worker's.

        Args:
            worker: it is asked what it holds.
            drain: begins to drain; called in a signal handler, at once if a signal came before.
        """
        self._worker, self._drain = worker, drain
        if self._told:
            drain()

    def ended(self) -> None:
        """The worker has ended. Does not return when it was hurried."""
        self._ended.set()
        if self._told > 1:
            self._thread.join()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._told += 1
        if self._told == 1:
            if self._drain is not None:
                # A loop that is closed has nothing to drain.
                with contextlib.suppress(RuntimeError):
                    self._drain()
        elif self._told == 2:
            self._hurry.put(None)
        else:
            self._exit_now(EXIT_FAILED)

    def _wait(self) -> None:
        self._hurry.get()
        worker = self._worker
        if worker is not None and worker.in_group and not worker.unsettled:
            self._ended.wait(LEAVE_S)
        # On a thread of its own: the event loop may hang with the log's lock.
        saying = threading.Thread(target=self._say, daemon=True)
        saying.start()
        saying.join(SAY_S)
        self._exit_now(EXIT_FAILED)

    def _say(self) -> None:
        worker = self._worker
        self._log.warning(
            "hurried",
            uncommitted=0 if worker is None else worker.unsettled,
            left_group=worker is None or not worker.in_group,
            code=EXIT_FAILED,
        )

    def _exits(self) -> None:
        # All is done, and the interpreter would put the default handlers back.
        self.ended()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
