"""How long a supervisor puts up with a worker that dies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.retry import Backoff
from workers.restart import PATIENCE, Patience, Restarts

QUICK_S, LONG_S = 1.0, 60.0


def restarts(random: float = 0.5, most_quick: int = 4) -> Restarts:
    return Restarts(
        Patience(Backoff(1.0, 4.0, lambda: random), quick_s=60.0, most_quick=most_quick)
    )


def test_pauses_double_up_to_the_longest_and_then_it_is_given_up() -> None:
    one = restarts()
    assert [one.died(QUICK_S) for _ in range(5)] == [0.5, 1.0, 2.0, 2.0, None]


def test_a_long_life_begins_a_new_row() -> None:
    one = restarts()
    for _ in range(3):
        one.died(QUICK_S)
    assert (one.died(LONG_S), one.deaths) == (0.5, 1)
    assert (one.died(QUICK_S), one.deaths) == (1.0, 2)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 10))
def test_a_pause_lies_between_zero_and_its_ceiling(random: float, deaths: int) -> None:
    one = Restarts(Patience(Backoff(0.5, 30.0, lambda: random)))
    pause_s = [one.died(QUICK_S) for _ in range(deaths)][-1]
    assert pause_s is not None
    assert 0 <= pause_s <= min(30.0, 0.5 * 2 ** (deaths - 1))


def test_the_default_waits_at_most_half_a_minute() -> None:
    assert PATIENCE.backoff.ceiling_s(PATIENCE.most_quick) == 30.0
