"""How the demo sizes its load to the machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.demo_calibration import busy, choose_scale, measure_others, target_busy

COSTS = st.dictionaries(st.text(max_size=3), st.floats(1e-4, 2.0), min_size=1, max_size=8)


@given(COSTS, st.floats(0.1, 60.0), st.floats(0.0, 1.0))
def test_the_scaled_load_meets_the_target_or_is_nominal(
    cost_s: dict[str, float], fps: float, others: float
) -> None:
    rates = dict.fromkeys(cost_s, fps)
    target = target_busy(others)
    scale = choose_scale(rates, cost_s, target)
    assert 0 < scale <= 1
    load = busy(rates, cost_s, scale)
    assert load <= target * (1 + 1e-9)
    if scale < 1:
        assert load == pytest.approx(target)


def test_a_fast_machine_plays_the_nominal_rates() -> None:
    assert choose_scale({"a": 15.0}, {"a": 0.001}, target_busy(0.0)) == 1.0


def test_a_busy_machine_is_left_to_others() -> None:
    assert target_busy(0.0) == pytest.approx(0.6)
    assert target_busy(0.5) == pytest.approx(0.3)
    # Never nothing: the demo has to show something.
    assert target_busy(1.0) == pytest.approx(0.12)


def test_what_others_take_is_a_share() -> None:
    assert 0.0 <= measure_others() <= 1.0
