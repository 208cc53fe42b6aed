"""The states of a partition's transactional writer and how they follow each other."""

from __future__ import annotations

from enum import Enum


class WriterState(Enum):
    """CLAIMING → READY → SENDING → COMMITTING → READY; RECOVERING after a failure, LOST once
    fenced, CLOSED from any."""

    CLAIMING = "claiming"
    """Its producer starts, which fences every earlier writer of the partition; then the group's
    offset is read."""
    READY = "ready"
    """The partition is this worker's, and no transaction is open."""
    SENDING = "sending"
    """A transaction is open: answers and offset go into it. What fails here is aborted."""
    COMMITTING = "committing"
    """Everything is in, and the broker was told to commit. What fails here is undecided until the
    offset is read again."""
    RECOVERING = "recovering"
    """A transaction failed: a new producer starts, and the group's offset says whether it was
    committed all the same."""
    LOST = "lost"
    """Another writer has the partition. What was not committed is given up."""
    CLOSED = "closed"
    """The partition was given back, or the worker ends."""


_NEXT: dict[WriterState, frozenset[WriterState]] = {
    WriterState.CLAIMING: frozenset({WriterState.READY, WriterState.CLOSED}),
    WriterState.READY: frozenset({WriterState.SENDING, WriterState.CLOSED}),
    WriterState.SENDING: frozenset(
        {WriterState.COMMITTING, WriterState.RECOVERING, WriterState.LOST, WriterState.CLOSED}
    ),
    WriterState.COMMITTING: frozenset(
        {WriterState.READY, WriterState.RECOVERING, WriterState.LOST, WriterState.CLOSED}
    ),
    WriterState.RECOVERING: frozenset({WriterState.READY, WriterState.LOST, WriterState.CLOSED}),
    WriterState.LOST: frozenset({WriterState.CLAIMING, WriterState.CLOSED}),
    WriterState.CLOSED: frozenset(),
}


def step(state: WriterState, to: WriterState) -> WriterState:
    """`to`, when it may follow `state`.

    Raises:
        RuntimeError: it may not.
    """
    if to not in _NEXT[state]:
        raise RuntimeError(f"a writer cannot go from {state.value} to {to.value}")
    return to
