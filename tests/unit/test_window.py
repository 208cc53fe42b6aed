"""How long a frame may wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.window import ConstantPolicy, FixedPolicy, IntervalPolicy, make_policy
from schemas.settings import Policy, WindowSettings

INTERVAL = IntervalPolicy(intervals=3.0, min_wait_s=0.002, max_wait_s=0.25)


@pytest.mark.parametrize(
    ("interval_s", "service_s", "wait_s"),
    [
        (None, 0.0, 0.25),  # unknown: the longest wait
        (None, 9.0, 0.25),
        (1 / 30, 0.0, 0.1),
        (1 / 30, 0.04, 0.06),  # the service time is part of the frame's latency
        (1 / 30, 0.5, 0.002),  # never below the least wait
        (10.0, 0.0, 0.25),  # never above the longest
    ],
)
def test_interval_policy(interval_s: float | None, service_s: float, wait_s: float) -> None:
    assert INTERVAL.wait_s(interval_s, service_s) == pytest.approx(wait_s)


@given(
    st.none() | st.floats(1e-6, 1e6),
    st.floats(0, 1e6),
)
def test_interval_policy_keeps_its_bounds(interval_s: float | None, service_s: float) -> None:
    assert INTERVAL.min_wait_s <= INTERVAL.wait_s(interval_s, service_s) <= INTERVAL.max_wait_s


def test_policies_come_from_settings_in_milliseconds() -> None:
    assert make_policy(WindowSettings(policy=Policy.FIXED, max_wait_ms=400)) == FixedPolicy(0.4)
    assert make_policy(
        WindowSettings(policy=Policy.WINDOW, constant_ms=50, min_wait_ms=2, idle_launch=False)
    ) == ConstantPolicy(0.05, 0.002, idle_launch=False)
    assert make_policy(
        WindowSettings(policy=Policy.INTERVAL, intervals=3, min_wait_ms=2, max_wait_ms=250)
    ) == IntervalPolicy(3.0, 0.002, 0.25)


def test_the_fixed_baseline_never_launches_early() -> None:
    assert not FixedPolicy(1.0).idle_launch
