"""Back-off with full jitter."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.retry import Backoff


def test_the_ceiling_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 5.0, lambda: 0.0)
    ceilings = [backoff.ceiling_s(n) for n in range(1, 9)]
    assert ceilings == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


@given(
    st.floats(0.001, 10.0), st.floats(0.001, 100.0), st.integers(1, 100_000), st.floats(0.0, 0.999)
)
def test_a_pause_lies_between_zero_and_its_ceiling(
    first_s: float, longest_s: float, failures: int, chance: float
) -> None:
    backoff = Backoff(first_s, longest_s, lambda: chance)
    pause_s = backoff.pause_s(failures)
    assert 0.0 <= pause_s <= backoff.ceiling_s(failures) <= longest_s
    assert pause_s == chance * backoff.ceiling_s(failures)


def test_the_jitter_is_full() -> None:
    backoff = Backoff(1.0, 1.0, random.Random(7).random)
    pauses = [backoff.pause_s(3) for _ in range(2_000)]
    counts = [sum(low <= p < low + 0.25 for p in pauses) for low in (0.0, 0.25, 0.5, 0.75)]
    assert sum(counts) == len(pauses)
    assert min(counts) > 400


def test_there_is_no_pause_before_a_failure() -> None:
    with pytest.raises(ValueError, match="after 0 failures"):
        Backoff(1.0, 1.0, lambda: 0.5).pause_s(0)
