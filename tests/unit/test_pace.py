"""When frames may leave, on a virtual clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.pace import ByteRate, Due, Pace, Thinner


def test_a_rate_does_not_drift() -> None:
    pace = Pace(25.0)
    dues = [pace.due(None, 0.0).at_s for _ in range(90_001)]
    assert dues[-1] == 3_600.0


def test_a_video_keeps_its_times_and_goes_on_after_its_end() -> None:
    pace = Pace(None)
    pace.next_source()
    assert [pace.due(at, 0.04).at_s for at in (0.0, 0.04, 0.1)] == [0.0, 0.04, 0.1]
    pace.next_source()
    assert pace.due(0.0, 0.04).at_s == pytest.approx(0.14)


def test_stills_and_a_rate_of_zero_are_not_paced() -> None:
    assert Pace(None).due(None, 0.0) == Due(None, None)
    assert Pace(0.0).due(3.0, 0.04) == Due(None, None)


def test_a_segment_is_due_when_it_is_over_and_captured_when_it_began() -> None:
    pace = Pace(None)
    assert pace.due(2.0, 1.0, segment=True) == Due(3.0, 2.0)


def test_a_file_that_came_late_is_not_hurried_after_the_time_that_passed() -> None:
    pace = Pace(None)
    pace.resume(100.0)
    assert pace.due(0.5, 0.04).at_s == 100.5
    steady = Pace(10.0)
    steady.resume(100.0)
    assert steady.due(None, 0.0).at_s == 100.0


@pytest.mark.parametrize(("source", "wanted"), [(30, 10), (25, 10), (25, 25), (30, 29.97), (60, 1)])
def test_thinning_keeps_the_rate_asked_for(source: float, wanted: float) -> None:
    thinner = Thinner(wanted)
    kept = sum(thinner.wants(round(i * 1e6 / source)) for i in range(round(source * 20)))
    assert kept == pytest.approx(wanted * 20, abs=2)


@given(st.lists(st.integers(-8_000, 8_000), min_size=300, max_size=300))
def test_jitter_does_not_cost_frames(jitter: list[int]) -> None:
    thinner = Thinner(10.0)
    stamps = sorted(i * 100_000 // 3 + 10_000 + j for i, j in enumerate(jitter))
    assert sum(thinner.wants(stamp) for stamp in stamps) == pytest.approx(100, abs=2)


def test_a_slower_source_keeps_all() -> None:
    thinner = Thinner(30.0)
    assert all(thinner.wants(i * 200_000) for i in range(50))


@given(st.lists(st.integers(1, 400_000), min_size=1, max_size=100))
def test_a_byte_rate_holds_on_average(sizes: list[int]) -> None:
    rate, now_s = ByteRate(100_000.0), 0.0
    for size in sizes:
        now_s += rate.wait_s(size, now_s)
    # One second's worth may go at once.
    assert sum(sizes) <= 100_000 * (now_s + 1.0) + 1.0
    assert now_s == pytest.approx(max(0.0, sum(sizes) / 100_000 - 1.0), abs=1e-6)
