"""Latency by batch size: tables that were measured, and what batches make of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.latency import FALL, PLATEAU_GAIN, Table, gain

SECONDS = st.floats(1e-6, 10)
TABLES = st.dictionaries(st.integers(1, 64), SECONDS, min_size=1, max_size=8)


def test_between_sizes_it_is_linear_and_beyond_them_in_proportion() -> None:
    table = Table({1: 0.010, 4: 0.016, 8: 0.024})
    assert table.at(1) == pytest.approx(0.010)
    assert table.at(2) == pytest.approx(0.012)
    assert table.at(6) == pytest.approx(0.020)
    assert table.at(16) == pytest.approx(0.048)


def test_below_the_smallest_size_it_is_the_smallest() -> None:
    assert Table({4: 0.02, 8: 0.03}).at(1) == 0.02


def test_a_larger_batch_that_was_faster_lowers_the_smaller() -> None:
    assert Table({1: 0.02, 4: 0.015}).at(1) == 0.015


@pytest.mark.parametrize("bad", [{}, {0: 0.1}, {1: 0.0}, {1: -1.0}, {1: math.inf}, {1: math.nan}])
def test_what_is_no_table_is_refused(bad: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="no latencies"):
        Table(bad)


def test_the_plateau_is_where_doubling_hardly_helps() -> None:
    # 10 ms a batch and 5 ms a frame: from 4 to 8 frames 20 % more, from 16 to 32 less than 6 %.
    table = Table({n: 0.010 + 0.005 * n for n in (1, 2, 4, 8, 16, 32, 64)})
    plateau = table.plateau()
    assert plateau is not None
    assert gain(table.at(plateau), plateau, table.at(2 * plateau), 2 * plateau) < PLATEAU_GAIN
    before = plateau - 1
    assert gain(table.at(before), before, table.at(2 * before), 2 * before) >= PLATEAU_GAIN
    assert Table({n: 0.01 * n for n in (1, 2, 4)}).plateau() == 1


def test_without_a_plateau_there_is_none() -> None:
    assert Table(dict.fromkeys((1, 2, 4, 8), 0.01)).plateau() is None
    assert Table({1: 0.01}).plateau() is None


def test_beyond_some_size_a_batch_is_slower_per_picture() -> None:
    # 50, 100, 125, 100 pictures per second; in between more than 90 % of the best.
    table = Table({1: 0.02, 2: 0.02, 8: 0.064, 16: 0.16})
    worth = table.worthwhile()
    assert worth is not None
    assert 8 <= worth < 16
    assert worth / table.at(worth) >= 0.9 * 125
    assert (worth + 1) / table.at(worth + 1) < 0.9 * 125


def test_where_no_batch_is_slower_all_are_worthwhile() -> None:
    assert Table({n: 0.010 + 0.005 * n for n in (1, 4, 16)}).worthwhile() is None
    assert Table({n: 0.01 * n for n in (1, 2, 4)}).worthwhile() is None
    assert Table({1: 0.01, 16: 0.01 * 16 * 1.09}).worthwhile() is None, "within the tolerance"
    assert Table({4: 0.01}).worthwhile() is None


@given(TABLES)
def test_what_is_worthwhile_is_near_the_best_speed(seconds: dict[int, float]) -> None:
    table = Table(seconds)
    worth = table.worthwhile() or table.sizes[-1]
    best = max(n / table.measured(n) for n in range(1, table.sizes[-1] + 1))
    assert worth / table.measured(worth) >= (1 - FALL) * best * (1 - 1e-9)


@pytest.mark.parametrize("factor", [0.3, 0.9, 1.5, 3.0])
def test_batches_move_the_table_where_they_are(factor: float) -> None:
    table = Table({n: 0.010 + 0.005 * n for n in (1, 4, 16)})
    expected = {n: factor * table.at(n) for n in (1, 3, 4, 16)}
    for _ in range(60):
        for n, seconds in expected.items():
            table.correct(n, seconds)
    for n in (1, 3, 4, 16):
        assert table.at(n) == pytest.approx(expected[n], rel=0.05)
    assert table.measured(4) == pytest.approx(0.030)


def test_a_stall_moves_little() -> None:
    table = Table({1: 0.01, 8: 0.04})
    table.correct(8, 60.0)
    assert table.at(8) < 0.05


def test_a_size_that_is_never_run_follows_the_others() -> None:
    table = Table({1: 0.01, 4: 0.02, 16: 0.06})
    for _ in range(100):
        table.correct(1, 0.03)
    assert table.at(16) == pytest.approx(0.06 * math.sqrt(3), rel=0.05)


@given(TABLES, st.lists(st.tuples(st.integers(1, 64), SECONDS), max_size=30), st.integers(1, 128))
def test_a_table_never_falls_with_size(
    seconds: dict[int, float], batches: list[tuple[int, float]], n: int
) -> None:
    table = Table(seconds)
    for size, took in batches:
        table.correct(size, took)
    assert 0 < table.at(n) <= table.at(n + 1) * (1 + 1e-9)
    assert table.measured(n) <= table.measured(n + 1) * (1 + 1e-9)
