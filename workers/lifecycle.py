"""The states of a worker and how they follow each other."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class WorkerState(Enum):
    """STARTING → RUNNING → DRAINING → STOPPED; FAILED from any but STOPPED."""

    STARTING = "starting"
    """Loads models, warms up, checks topics. Not in the group yet."""
    RUNNING = "running"
    DRAINING = "draining"
    """Takes nothing more; settles and commits what it has."""
    STOPPED = "stopped"
    """Everything taken in was settled and committed, or belongs to others by now."""
    FAILED = "failed"
    """Ended without committing what it held; the next owner receives it again."""


_NEXT: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.STARTING: frozenset(
        {WorkerState.RUNNING, WorkerState.DRAINING, WorkerState.FAILED}
    ),
    WorkerState.RUNNING: frozenset({WorkerState.DRAINING, WorkerState.FAILED}),
    WorkerState.DRAINING: frozenset({WorkerState.STOPPED, WorkerState.FAILED}),
    WorkerState.STOPPED: frozenset(),
    WorkerState.FAILED: frozenset(),
}


class Lifecycle:
    """The worker's state. Written by the event loop's thread, read by any.

    Args:
        entered: told of every new state.
    """

    def __init__(self, entered: Callable[[WorkerState], None]) -> None:
        self._entered = entered
        self._state = WorkerState.STARTING

    @property
    def state(self) -> WorkerState:
        return self._state

    def enter(self, state: WorkerState) -> None:
        """Move on.

        Raises:
            RuntimeError: `state` cannot follow the present one.
        """
        if state not in _NEXT[self._state]:
            raise RuntimeError(f"a worker cannot go from {self._state.value} to {state.value}")
        self._state = state
        self._entered(state)
