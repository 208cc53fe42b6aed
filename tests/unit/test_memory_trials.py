"""How long a size takes for `max_batch: auto`, on a machine that is busy with other things."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.memory_trials import MOST_REPEATS, fastest


def after(seconds: list[float]) -> tuple[float, int]:
    """What is found of runs that take so long, and how many were made."""
    left = iter(seconds)
    found = fastest(lambda: next(left))
    return found, len(seconds) - len(list(left))


def test_where_runs_are_alike_three_are_enough() -> None:
    assert after([1.0] * MOST_REPEATS) == (1.0, 3)


def test_while_they_become_faster_there_are_more() -> None:
    assert after([3.0, 2.0, 1.5, 1.6, 1.4, 1.4, 1.399, 9.0]) == (1.399, 7)


def test_the_first_pays_for_more_than_itself() -> None:
    assert after([9.0, 1.0, 1.2, 1.3, 0.1, 0.1, 0.1, 0.1]) == (1.0, 4)


@given(st.lists(st.floats(0.001, 10), min_size=MOST_REPEATS, max_size=MOST_REPEATS))
def test_it_ends_and_is_the_least_that_was_seen(seconds: list[float]) -> None:
    found, runs = after(seconds)
    assert 3 <= runs <= MOST_REPEATS
    assert found == pytest.approx(min(seconds[:runs]))
