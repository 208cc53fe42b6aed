"""A writer's states follow each other as its table says, and not otherwise."""

from __future__ import annotations

import itertools

import pytest

from workers.writer_state import WriterState, step

WAY = (
    WriterState.CLAIMING, WriterState.READY, WriterState.SENDING, WriterState.COMMITTING,
    WriterState.READY, WriterState.SENDING, WriterState.RECOVERING, WriterState.READY,
    WriterState.SENDING, WriterState.LOST, WriterState.CLAIMING, WriterState.CLOSED,
)  # fmt: skip


def test_the_way_of_a_partition() -> None:
    for before, after in itertools.pairwise(WAY):
        assert step(before, after) is after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (WriterState.SENDING, WriterState.READY),
        (WriterState.RECOVERING, WriterState.SENDING),
        (WriterState.LOST, WriterState.READY),
        (WriterState.CLAIMING, WriterState.SENDING),
        *((WriterState.CLOSED, state) for state in WriterState),
    ],
)
def test_no_short_cuts(before: WriterState, after: WriterState) -> None:
    with pytest.raises(RuntimeError, match=before.value):
        step(before, after)


def test_every_state_but_the_last_can_be_closed() -> None:
    for state in WriterState:
        if state is not WriterState.CLOSED:
            step(state, WriterState.CLOSED)
