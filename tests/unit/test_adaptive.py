"""JPEG quality that follows the broker, on a virtual clock."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frameloom.adaptive import Adaptive, AdaptiveLimits
from frameloom.flight import Flight

LIMITS = AdaptiveLimits(best=90, worst=30)
SLOW, FAIR, QUICK = 2.0, 0.5, 0.01


def run(adaptive: Adaptive, seconds: float, delay_s: float, now: float = 0.0) -> float:
    """Observations at 10 a second; the time afterwards."""
    for _ in range(round(seconds * 10)):
        adaptive.observe(now, delay_s, 0)
        now += 0.1
    return now


def test_it_steps_down_once_per_period_to_the_worst_and_then_leaves_frames_out() -> None:
    adaptive = Adaptive(LIMITS, may_skip=True)
    seen: list[tuple[int, int]] = []
    now = 0.0
    for _ in range(12):
        now = run(adaptive, 1.0, SLOW, now)
        seen.append((adaptive.quality, adaptive.keep_one_in))
    qualities = [80, 70, 60, 50, 40, 30]
    assert seen[:6] == [(quality, 1) for quality in qualities]
    assert seen[6:9] == [(30, 2), (30, 4), (30, 8)]
    assert seen[9:] == [(30, 8)] * 3


def test_files_keep_every_frame() -> None:
    adaptive = Adaptive(LIMITS, may_skip=False)
    run(adaptive, 30.0, SLOW)
    assert (adaptive.quality, adaptive.keep_one_in) == (30, 1)
    assert all(adaptive.wants_next() for _ in range(20))


def test_left_out_frames_are_spread_evenly() -> None:
    adaptive = Adaptive(LIMITS, may_skip=True)
    run(adaptive, 8.0, SLOW)
    assert adaptive.keep_one_in == 4
    assert [adaptive.wants_next() for _ in range(8)] == [False, False, False, True] * 2


def test_it_climbs_back_slowly_to_the_best() -> None:
    adaptive = Adaptive(LIMITS, may_skip=True)
    now = run(adaptive, 3.0, SLOW)
    assert adaptive.quality == 60
    now = run(adaptive, 4.5, QUICK, now)
    assert adaptive.quality == 60
    now = run(adaptive, 1.0, QUICK, now)
    assert adaptive.quality == 70
    run(adaptive, 11.0, QUICK, now)
    assert (adaptive.quality, adaptive.level) == (90, 0)


def test_between_the_thresholds_nothing_moves() -> None:
    adaptive = Adaptive(LIMITS, may_skip=True)
    now = run(adaptive, 2.0, SLOW)
    quality = adaptive.quality
    run(adaptive, 300.0, FAIR, now)
    assert adaptive.quality == quality


def test_a_step_up_that_is_not_borne_makes_the_next_try_later() -> None:
    adaptive = Adaptive(LIMITS, may_skip=True)
    now, climbs = 0.0, []
    # A link that bears quality 60 and no more.
    level = 0
    for _ in range(6_000):
        adaptive.observe(now, SLOW if adaptive.quality > 60 else QUICK, 0)
        if adaptive.level < level:
            climbs.append(now)
        level = adaptive.level
        now += 0.1
    gaps = [b - a for a, b in pairwise(climbs)]
    assert gaps[0] < gaps[-1]
    assert gaps[-1] >= LIMITS.longest_calm_s
    assert len(climbs) < 20


def test_dropped_frames_count_as_slow_however_quick_the_rest() -> None:
    adaptive = Adaptive(LIMITS, may_skip=True)
    adaptive.observe(0.0, QUICK, 3)
    assert adaptive.quality == 80


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 10), st.integers(0, 3)), max_size=200))
def test_it_stays_within_its_bounds(steps: list[tuple[float, float, int]]) -> None:
    adaptive, now = Adaptive(LIMITS, may_skip=True), 0.0
    for passed, delay_s, dropped in steps:
        now += passed
        adaptive.observe(now, delay_s, dropped)
        assert 30 <= adaptive.quality <= 90
        assert adaptive.keep_one_in in {1, 2, 4, 8}


def test_one_quality_alone() -> None:
    adaptive = Adaptive(AdaptiveLimits(best=40, worst=40), may_skip=True)
    run(adaptive, 2.0, SLOW)
    assert (adaptive.quality, adaptive.keep_one_in) == (40, 4)


def test_a_flight_knows_its_longest_wait() -> None:
    flight = Flight()
    first, second = flight.depart(0.0), flight.depart(1.0)
    assert (len(flight), flight.delay_s(3.0)) == (2, 3.0)
    flight.land(first, 4.0)
    assert flight.delay_s(4.0) == 4.0
    # The longest was told; what is left is the second's age.
    assert flight.delay_s(4.5) == 3.5
    flight.land(second, 5.0)
    assert flight.delay_s(9.0) == 4.0
    assert (len(flight), flight.delay_s(9.0)) == (0, 0.0)
