"""Predicting a batch's latency from finished ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.surface import Surface

KEY = ("default", "480p")


def seen(*pairs: tuple[int, float]) -> Surface:
    surface = Surface()
    for n, seconds in pairs:
        surface.observe(*KEY, n, seconds)
    return surface


def test_nothing_seen_predicts_nothing() -> None:
    assert Surface().service_s(*KEY, 8) == 0.0


def test_one_size_seen_bounds_the_others() -> None:
    surface = seen((4, 0.1))
    assert surface.service_s(*KEY, 4) == pytest.approx(0.1)
    assert surface.service_s(*KEY, 1) == pytest.approx(0.1)
    assert surface.service_s(*KEY, 8) == pytest.approx(0.2)


def test_a_line_is_learned() -> None:
    surface = seen(*[(n, 0.010 + 0.005 * n) for n in (1, 2, 4, 8, 16)])
    for n in (1, 3, 12, 16, 32):
        assert surface.service_s(*KEY, n) == pytest.approx(0.010 + 0.005 * n)


def test_drift_is_followed() -> None:
    surface = seen(*[(n, 0.01 * n) for n in (1, 2, 4, 8)] * 20)
    for n in (1, 2, 4, 8) * 60:
        surface.observe(*KEY, n, 0.03 * n)
    assert surface.service_s(*KEY, 8) == pytest.approx(0.24, rel=0.02)


def test_buckets_and_routes_are_apart() -> None:
    surface = seen((1, 0.1))
    assert surface.service_s("default", "4k", 1) == 0.0
    assert surface.service_s("other", "480p", 1) == 0.0


@given(
    st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 10)), min_size=1, max_size=50),
    st.integers(1, 128),
)
def test_predictions_are_positive_and_never_fall_with_size(
    pairs: list[tuple[int, float]], n: int
) -> None:
    surface = seen(*pairs)
    assert surface.service_s(*KEY, n) >= -1e-9
    assert surface.service_s(*KEY, n + 1) >= surface.service_s(*KEY, n) - 1e-9


MEASURED = {KEY: {n: 0.010 + 0.005 * n for n in (1, 4, 16, 64)}}


def test_a_measured_surface_predicts_before_the_first_batch() -> None:
    surface = Surface(MEASURED)
    assert surface.service_s(*KEY, 4) == pytest.approx(0.030)
    assert surface.service_s("default", "4k", 4) == 0.0


def test_what_is_around_the_model_comes_on_top() -> None:
    surface = Surface(MEASURED)
    for n in (1, 4, 16) * 3:
        surface.observe(*KEY, n, MEASURED[KEY][n], around_s=0.002 * n)
    assert surface.service_s(*KEY, 8) == pytest.approx(0.010 + 0.007 * 8)


def test_a_bucket_that_was_not_measured_prefers_no_size() -> None:
    surface = Surface(MEASURED)
    preferred = surface.preferred(*KEY)
    assert preferred is not None
    assert 16 <= preferred <= 32
    assert surface.preferred("default", "4k") is None
    assert Surface({KEY: {1: 0.01}}).preferred(*KEY) is None


def test_a_busy_machine_is_no_drift_but_predictions_follow_it() -> None:
    """On the clock batches take four times as long; the model's own processor time is as it was."""
    surface = Surface(MEASURED)
    told = [surface.observe(*KEY, 4, 0.120, model_s=0.031) for _ in range(200)]
    assert not any(told)
    assert [drift.ratio for drift in surface.drifts()] == [pytest.approx(0.031 / 0.030)]
    assert surface.service_s(*KEY, 4) == pytest.approx(0.120, rel=0.02)


def test_a_model_that_needs_more_processor_time_has_drifted() -> None:
    surface = Surface(MEASURED)
    told = [surface.observe(*KEY, 4, 0.120, model_s=0.075) for _ in range(100)]
    assert [drift.alarmed for drift in told if drift] == [True]


def test_drift_is_told_once_and_shown_until_it_ends() -> None:
    surface = Surface(MEASURED)
    assert [drift.ratio for drift in surface.drifts()] == [1.0]
    told = [surface.observe(*KEY, 4, 0.090) for _ in range(100)]
    (raised,) = [drift for drift in told if drift]
    assert (raised.route, raised.bucket, raised.alarmed) == (*KEY, True)
    assert [d.alarmed for d in surface.drifts()] == [True]
    assert surface.service_s(*KEY, 4) == pytest.approx(0.090, rel=0.02)
    told = [surface.observe(*KEY, 4, 0.030) for _ in range(100)]
    assert [drift.alarmed for drift in told if drift] == [False]
