"""A worker's states follow each other in one way only."""

from __future__ import annotations

import itertools

import pytest

from workers.lifecycle import Lifecycle, WorkerState

S = WorkerState
LEGAL = {
    (S.STARTING, S.RUNNING),
    (S.STARTING, S.DRAINING),
    (S.STARTING, S.FAILED),
    (S.RUNNING, S.DRAINING),
    (S.RUNNING, S.FAILED),
    (S.DRAINING, S.STOPPED),
    (S.DRAINING, S.FAILED),
}
WAY = {
    S.STARTING: [],
    S.RUNNING: [S.RUNNING],
    S.DRAINING: [S.RUNNING, S.DRAINING],
    S.STOPPED: [S.RUNNING, S.DRAINING, S.STOPPED],
    S.FAILED: [S.FAILED],
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)))
def test_only_legal_steps_are_taken(before: S, after: S) -> None:
    entered: list[S] = []
    lifecycle = Lifecycle(entered.append)
    for state in WAY[before]:
        lifecycle.enter(state)
    assert lifecycle.state is before

    if (before, after) in LEGAL:
        lifecycle.enter(after)
        assert entered[-1] is lifecycle.state is after
    else:
        with pytest.raises(RuntimeError, match=f"from {before.value} to {after.value}"):
            lifecycle.enter(after)
        assert lifecycle.state is before
