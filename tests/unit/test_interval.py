"""Learning the time between a stream's frames from capture times."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.interval import US, IntervalTable

START = 1_700_000_000 * US


def learn(stamps: list[int], *, declared_us: int | None = None, **options: int) -> float | None:
    table = IntervalTable(**options)
    for stamp in stamps:
        table.observe("cam", stamp, declared_us)
    return table.interval_s("cam")


def test_unknown_stream_has_no_interval() -> None:
    assert IntervalTable().interval_s("cam") is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_than_four_stamps_give_no_estimate(count: int) -> None:
    assert learn([START + i * 40_000 for i in range(count)]) is None


def test_a_declared_interval_seeds_it_until_it_is_measured() -> None:
    assert learn([START], declared_us=66_667) == pytest.approx(0.066667)
    measured = learn([START + i * 40_000 for i in range(8)], declared_us=66_667)
    assert measured == pytest.approx(0.040)


@given(
    interval_us=st.integers(1_000, 2 * US),
    jitter=st.floats(0, 0.4),
    seed=st.integers(0, 2**32),
)
def test_jitter_hardly_moves_the_estimate(interval_us: int, jitter: float, seed: int) -> None:
    rng = random.Random(seed)
    stamps = [START + round(interval_us * (i + rng.uniform(-jitter, jitter))) for i in range(64)]
    estimate = learn(stamps)
    # Count over span of 32 stamps: only the jitter of the two ends counts.
    assert estimate == pytest.approx(interval_us / US, rel=2 * 0.4 / 31 + 0.01)


@pytest.mark.parametrize("burst", [2, 3, 4])
def test_bursts_of_equal_stamps_are_averaged(burst: int) -> None:
    """Producers that send in bunches stamp several frames with one instant."""
    stamps = [START + (i // burst) * burst * 100_000 for i in range(60)]
    assert learn(stamps) == pytest.approx(0.1, rel=0.15)


def test_a_pause_starts_the_estimate_anew() -> None:
    table = IntervalTable()
    for i in range(20):
        table.observe("cam", START + i * 50_000)
    table.observe("cam", START + 60 * US)
    assert table.interval_s("cam") is None
    for i in range(1, 5):
        table.observe("cam", START + 60 * US + i * 200_000)
    assert table.interval_s("cam") == pytest.approx(0.2)


def test_a_clock_set_back_starts_the_estimate_anew() -> None:
    """A looped video begins its time stamps again."""
    table = IntervalTable()
    for _ in range(3):
        for i in range(20):
            table.observe("cam", START + i * 50_000)
    assert table.interval_s("cam") == pytest.approx(0.05)


def test_a_changed_rate_is_followed() -> None:
    table = IntervalTable()
    stamp = START
    for _ in range(40):
        stamp += 50_000
        table.observe("cam", stamp)
    for _ in range(40):
        stamp += 100_000
        table.observe("cam", stamp)
    assert table.interval_s("cam") == pytest.approx(0.1)


def test_stamps_that_never_move_give_no_estimate() -> None:
    assert learn([START] * 40) is None


@given(st.lists(st.integers(-(2**62), 2**62), max_size=100))
def test_any_stamps_give_a_positive_interval_or_none(stamps: list[int]) -> None:
    interval = learn(stamps)
    assert interval is None or interval > 0


def test_streams_are_forgotten_least_recently_seen_first() -> None:
    table = IntervalTable(max_streams=2)
    for stream in ("a", "b", "a", "c"):
        for i in range(4):
            table.observe(stream, START + i * 10_000)
    assert len(table) == 2
    assert table.interval_s("b") is None
    assert table.interval_s("a") is not None
