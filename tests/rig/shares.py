"""Who runs what, where the suite runs on several processes (pytest-xdist)."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SCENARIOS = "tests/scenario/test_scenarios.py"


class Shares(LoadScopeScheduling):
    """A file goes to one process, because its tests share what they set up, but each scenario by
    itself. (The library's own groups, by a mark, have no effect under pytest 9.2.)

    A process that dies costs the test it was in, and no other: the library's own scheduler (3.8)
    would run that test again, and would hand the units that are done to the others, who never ask
    for more after being handed nothing, so that the run would not end.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Its process has ended. Returns the test that it died in; None if it had nothing left."""
        workload = self.assigned_work.pop(node)
        left = [
            (scope, test)
            for scope, unit in workload.items()
            for test, done in unit.items()
            if not done
        ]
        if not left:
            return None
        for scope, test in left[1:]:
            self.workqueue.setdefault(scope, {})[test] = False
        for other in self.assigned_work:
            self._reschedule(other)
        return left[0][1]

    def _reschedule(self, node: WorkerController) -> None:
        # Of two that died at once, the second's successor may not know the tests yet; it asks then.
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        # With one test in hand a process waits for the next, and a new one asks only once.
        while (
            self.workqueue
            and not node.shutting_down
            and self._pending_of(self.assigned_work[node]) < 2
        ):
            self._assign_work_unit(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        # One that has died is not told anything; that it has comes next, and its share is dealt out
        # again.
        with suppress(OSError):
            super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file == SCENARIOS else file


def how_it_ended(node: WorkerController, patience_s: float = 10.0) -> str:
    """What ended the process of a node that is down: a signal's name or an exit code. A library
    that calls `exit` gives its reason to a standard error that pytest has caught.
    """
    process: subprocess.Popen[bytes] | None = getattr(node.gateway._io, "popen", None)
    if process is None:
        return "it was no process of this machine"
    try:
        code = process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return "it still runs: what it reads or writes was closed"
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
