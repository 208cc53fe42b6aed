"""The drift alarm: lasting factors, with hysteresis."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.drift import LEAST_BATCHES, DriftWatch


def fed(ratio: float, batches: int, watch: DriftWatch | None = None) -> tuple[DriftWatch, int]:
    """The watch, and how often its alarm changed."""
    watch = watch or DriftWatch()
    return watch, sum(watch.observe(ratio) for _ in range(batches))


def test_as_measured_is_no_alarm() -> None:
    watch, changes = fed(1.0, 200)
    assert (watch.ratio, watch.alarmed, changes) == (pytest.approx(1.0), False, 0)


@pytest.mark.parametrize("ratio", [2.5, 0.4])
def test_a_lasting_factor_raises_it_once_and_its_end_clears_it_once(ratio: float) -> None:
    watch, changes = fed(ratio, LEAST_BATCHES - 1)
    assert not changes
    watch, changes = fed(ratio, 200, watch)
    assert watch.alarmed
    assert changes == 1
    assert watch.ratio == pytest.approx(ratio, rel=0.01)
    watch, changes = fed(1.0, 200, watch)
    assert not watch.alarmed
    assert changes == 1


def test_between_the_bounds_it_stays_as_it_is() -> None:
    watch, _ = fed(3.0, 100)
    watch, changes = fed(1.8, 500, watch)
    assert watch.alarmed
    assert not changes
    watch, changes = fed(1.8, 500)
    assert not watch.alarmed
    assert not changes


def test_one_stall_is_no_drift() -> None:
    watch, _ = fed(1.0, 100)
    watch.observe(1e4)
    assert not watch.alarmed


@given(st.lists(st.floats(1.34, 1.98), min_size=1, max_size=200))
def test_a_ratio_near_the_bound_makes_no_log_of_alarms(ratios: list[float]) -> None:
    watch, _ = fed(4.0, 50)
    assert sum(watch.observe(ratio) for ratio in ratios) <= 1
