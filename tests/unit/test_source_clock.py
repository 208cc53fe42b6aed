"""Capture times of live frames."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from frameloom.source_clock import SourceClock

START = 1_700_000_000_000_000
STEP = 40_000


def test_jitter_of_arrival_is_taken_out() -> None:
    clock = SourceClock()
    late = [0, 30_000, 5_000, 80_000, 0, 12_000, 60_000]
    times = [clock.captured_at_us(i * STEP, START + i * STEP + d) for i, d in enumerate(late)]
    assert [b - a for a, b in pairwise(times)] == [STEP] * 6


def test_the_quickest_frame_sets_the_offset() -> None:
    clock = SourceClock()
    # The first frames come in a burst, after the connection was probed.
    burst = [clock.captured_at_us(i * STEP, START + 1_000_000) for i in range(25)]
    assert burst == [START + 1_000_000] * 25
    later = [clock.captured_at_us(i * STEP, START + i * STEP) for i in range(25, 50)]
    assert later[-1] == START + 49 * STEP


def test_a_slow_camera_clock_is_followed() -> None:
    clock = SourceClock()
    # It loses 1 ms a second: after ten minutes its offset has grown by 0.6 s.
    for second in range(600):
        now_us = START + second * 1_000_000
        at_us = clock.captured_at_us(second * 999_000, now_us)
        assert now_us - at_us <= 125_000


def test_a_new_timeline_begins_where_ours_is() -> None:
    clock = SourceClock()
    clock.captured_at_us(5_000_000, START)
    clock.reconnected()
    assert clock.captured_at_us(0, START + 3_000_000) == START + 3_000_000
    # Without being told, too: the stamps jump, and our clock did not.
    assert clock.captured_at_us(900_000_000, START + 3_040_000) == START + 3_040_000
    assert clock.captured_at_us(0, START + 3_080_000) == START + 3_080_000


def test_a_pause_of_both_clocks_is_no_new_timeline() -> None:
    clock = SourceClock()
    clock.captured_at_us(0, START)
    assert clock.captured_at_us(60_000_000, START + 60_030_000) == START + 60_000_000


def test_the_camera_s_own_clock_is_believed_while_it_is_near() -> None:
    clock = SourceClock()
    assert clock.captured_at_us(0, START, START - 200_000) == START - 200_000
    assert clock.captured_at_us(STEP, START + STEP, 0) == START + STEP
    # Ahead of ours: never later than now.
    assert clock.captured_at_us(2 * STEP, START + 2 * STEP, START + 900_000) == START + 2 * STEP


def test_without_stamps_arrival_is_all_there_is() -> None:
    assert SourceClock().captured_at_us(None, START) == START


@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**40), 2**40)),
            st.integers(0, 10_000_000),
            st.one_of(st.none(), st.integers(START - 10_000_000, START + 10_000_000)),
        ),
        max_size=60,
    )
)
def test_times_never_fall_and_are_never_in_the_future(
    frames: list[tuple[int | None, int, int | None]],
) -> None:
    clock, now_us, last = SourceClock(), START, 0
    for stamp, passed, camera in frames:
        now_us += passed
        at_us = clock.captured_at_us(stamp, now_us, camera)
        assert last <= at_us <= now_us
        last = at_us
