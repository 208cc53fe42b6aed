"""The guard around native calls: who is inside stands in the journal, and nobody stays too long.

A native call that hangs cannot be cancelled. Past its deadline the process has to end, and the
journal then says which records were inside.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from pipeline.journal import Journal, Located, Stage
from pipeline.ports import Clock

log = logging.getLogger(__name__)

LATE_S = 1.0
"""A watch that wakes so much later than it meant to was stopped, or starved, and so were the calls
it watches: their time begins anew."""


class Guard(Protocol):
    """What a stage asks before it goes where it may not come back from."""

    def inside(self, stage: Stage, items: Sequence[Located]) -> AbstractContextManager[None]:
        """Holds while `stage` makes one native call for `items`; without items, for itself (a
        check on harmless input)."""
        ...


class Unguarded:
    """No journal and no deadline: for tests and benches."""

    def inside(
        self,
        stage: Stage,  # noqa: ARG002 (the protocol's)
        items: Sequence[Located],  # noqa: ARG002 (the protocol's)
    ) -> AbstractContextManager[None]:
        """Anybody may go in."""
        return nullcontext()


class Door:
    """Lets calls in together, and one that must be alone while nobody else is inside. One that
    waits to be alone keeps later ones out. For any number of threads."""

    def __init__(self) -> None:
        self.waiting = 0
        """Calls that wait until they can be alone."""
        self._inside = 0
        self._alone = False
        self._changed = threading.Condition()

    def enter(self, *, alone: bool) -> None:
        """Wait to be let in, and be inside until `leave`."""
        with self._changed:
            if alone:
                self.waiting += 1
                self._changed.wait_for(lambda: not self._inside)
                self.waiting -= 1
            else:
                self._changed.wait_for(lambda: not (self._alone or self.waiting))
            self._alone = alone
            self._inside += 1

    def leave(self) -> None:
        """Out again."""
        with self._changed:
            self._inside -= 1
            self._alone = False
            self._changed.notify_all()


@dataclass(slots=True, eq=False)
class _Call:
    stage: Stage
    began_at: float
    records: int
    reported: bool = False


@dataclass(frozen=True, slots=True)
class HungCall:
    """A native call past its deadline: the stage, its records, and how long it has been inside."""

    stage: Stage
    records: int
    seconds: float


class NativeGuard:
    """Journal and deadline for the native calls of one device.

    `look` may be driven by a test; `start` puts it on a thread that sleeps until the next deadline
    can be over. A call needs no wake-up of that thread: it cannot be late before the thread's next
    look, because the thread never sleeps longer than one deadline.

    Args:
        journal: of this process.
        timeout_s: the longest that one call may take.
        hung: told of a call that takes longer; should not return, but end the process.
        keep_alive: called at every look with the seconds until the next one is overdue: arms a
            watch that needs no interpreter lock, for calls that hang with it.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        journal: Journal,
        timeout_s: float,
        *,
        hung: Callable[[HungCall], None],
        keep_alive: Callable[[float], None] = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._journal = journal
        self._timeout_s = timeout_s
        self._hung = hung
        self._keep_alive = keep_alive
        self._clock = clock
        self._calls: dict[Stage, _Call] = {}
        self.door = Door()
        self._look_at = math.inf
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="native-guard", daemon=True)

    @contextmanager
    def inside(self, stage: Stage, items: Sequence[Located]) -> Generator[None]:
        """See `Guard.inside`. On the stage's own thread. A suspect is let in alone, whatever the
        stage: were anybody else inside when it crashes, the blame would not be certain."""
        self.door.enter(alone=any(item.solo for item in items))
        try:
            if items:
                self._journal.enter(stage, items)
            self._calls[stage] = _Call(stage, self._clock(), len(items))
            try:
                yield
            finally:
                del self._calls[stage]
                if items:
                    self._journal.leave(stage)
        finally:
            self.door.leave()

    def start(self) -> None:
        """Watch from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer. Safe to call twice, and before `start`."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self, now: float) -> float:
        """Report calls past their deadline. Returns when to look again (monotonic seconds)."""
        late_s = max(0.0, now - self._look_at)
        # A copy: the stages come and go meanwhile.
        calls = list(self._calls.values())
        for call in calls:
            if late_s > LATE_S:
                call.began_at = now
            if now - call.began_at >= self._timeout_s and not call.reported:
                call.reported = True
                self._journal.mark_hung(call.stage)
                self._hung(HungCall(call.stage, call.records, now - call.began_at))
        waiting = [call.began_at for call in calls if not call.reported]
        self._look_at = min([now, *waiting]) + self._timeout_s
        self._keep_alive(self._look_at - now + self._timeout_s)
        return self._look_at

    def _run(self) -> None:
        try:
            look_at = self.look(self._clock())
            while not self._stopping.wait(max(0.0, look_at - self._clock())):
                look_at = self.look(self._clock())
        except Exception:
            # Without a watch a hung call would stand still until the worker's own watchdog.
            log.exception("the watch over native calls failed")
