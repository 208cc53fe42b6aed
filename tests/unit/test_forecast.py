"""When the next frame of an absent stream is expected."""

from __future__ import annotations

import math

from pipeline.forecast import MAX_GRACE_S, ArrivalForecast


def test_nobody_known_nobody_expected() -> None:
    assert ArrivalForecast().next_arrival(0.0) == math.inf


def test_present_streams_are_not_expected() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("a", 10.0, 0.1)
    assert forecast.next_arrival(10.0) == math.inf
    assert forecast.next_arrival(99.0) == math.inf


def test_a_stream_that_left_is_expected_one_interval_after_its_last_frame() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("a", 10.0, 0.1)
    forecast.left("a")
    assert forecast.next_arrival(10.05) == 10.1


def test_two_frames_present_one_left_is_still_present() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("a", 10.0, 0.1)
    forecast.arrived("a", 10.1, 0.1)
    forecast.left("a")
    assert forecast.next_arrival(10.1) == math.inf
    forecast.left("a")
    assert forecast.next_arrival(10.1) == 10.2


def test_a_late_stream_is_waited_for_and_then_given_up() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("a", 10.0, 0.1)
    forecast.left("a")
    assert forecast.next_arrival(10.12) == 10.12  # late: may come at any moment
    assert forecast.next_change(10.12) == 10.1 + 0.05
    assert forecast.next_arrival(10.16) == math.inf  # no longer active


def test_the_grace_of_slow_streams_is_bounded() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("a", 0.0, 60.0)
    forecast.left("a")
    assert forecast.next_arrival(60.05) == 60.05
    assert forecast.next_arrival(60.0 + MAX_GRACE_S) == math.inf


def test_an_arrival_makes_older_expectations_void() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("a", 10.0, 0.1)
    forecast.left("a")
    forecast.arrived("a", 10.05, 0.1)
    assert forecast.next_arrival(10.11) == math.inf
    forecast.left("a")
    assert forecast.next_arrival(10.11) == 10.05 + 0.1


def test_streams_without_interval_are_never_expected() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("still", 10.0, None)
    forecast.left("still")
    assert forecast.next_arrival(10.0) == math.inf


def test_the_soonest_of_many() -> None:
    forecast = ArrivalForecast()
    for index, interval in enumerate((0.5, 0.2, 0.3)):
        forecast.arrived(str(index), 0.0, interval)
        forecast.left(str(index))
    assert forecast.next_arrival(0.0) == 0.2


def test_what_nobody_asks_for_is_not_kept_for_ever() -> None:
    """A queue under lasting load never asks; streams come, leave and never return."""
    forecast = ArrivalForecast()
    for index in range(5_000):
        at = index / 100
        forecast.arrived(f"cam{index}", at, 0.1)
        forecast.left(f"cam{index}")
    kept = len(forecast._streams), len(forecast._upcoming), len(forecast._overdue)
    assert max(kept) <= 20  # an interval of them, and their grace


def test_far_expectations_are_few_however_long_producers_say_their_intervals_are() -> None:
    forecast = ArrivalForecast()
    for index in range(2_000):
        forecast.arrived(f"once{index}", index / 100, 1e9)
        forecast.left(f"once{index}")
    assert not forecast._streams
    assert forecast.next_arrival(20.0) == math.inf


def test_expectations_made_void_below_one_that_is_far_away_are_swept_out() -> None:
    forecast = ArrivalForecast()
    forecast.arrived("slow", 0.0, 50.0)
    forecast.left("slow")
    for index in range(2_000):
        forecast.arrived("often", index / 100, 55.0)
        forecast.left("often")
    assert len(forecast._upcoming) <= 2 * 2 + 32 + 1
    assert forecast.next_arrival(20.0) == 50.0
