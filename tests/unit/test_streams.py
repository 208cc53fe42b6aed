"""Per-stream counts stay bounded and exact in sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.streams import IDLE_S, MAX_GAP_S, OTHER, StreamTable


def rows(table: StreamTable) -> dict[str, tuple[int, int]]:
    return {row.name: (row.received, row.answered) for row in table.snapshot()}


def test_streams_beyond_the_places_share_one_row() -> None:
    table = StreamTable(places=1)
    for stream in ("a", "b", "c"):
        table.receive(stream, None, now=0.0)
        table.answer(stream)
    assert rows(table) == {"a": (1, 1), OTHER: (2, 2)}


def test_a_silent_stream_gives_its_place_up_with_its_counts() -> None:
    table = StreamTable(places=1)
    table.receive("a", None, now=0.0)
    table.receive("b", None, now=1.0)
    table.receive("b", None, now=IDLE_S + 2.0)
    assert rows(table) == {OTHER: (2, 0), "b": (1, 0)}
    table.answer("a")
    assert rows(table)[OTHER] == (2, 1)


def test_the_interval_is_learned_from_capture_times_and_not_from_pauses() -> None:
    table = StreamTable(places=5)
    for captured_us in (1_000_000, 1_100_000, 1_200_000):
        table.receive("a", captured_us, now=0.0)
    table.receive("a", round(1_200_000 + MAX_GAP_S * 2e6), now=0.0)
    table.receive("b", 1_000_000, now=0.0)
    found = {row.name: row.interval_s for row in table.snapshot()}
    assert found["a"] == pytest.approx(0.1)
    assert found["b"] is None


def test_lag_is_that_of_the_latest_frame_and_nobodys_for_the_others() -> None:
    table = StreamTable(places=1)
    table.receive("a", 1_000_000, now=0.0, lag_s=3.0)
    table.receive("a", 1_100_000, now=0.1, lag_s=2.0)
    table.receive("b", 1_000_000, now=0.1, lag_s=9.0)
    assert {row.name: row.lag_s for row in table.snapshot()} == {"a": 2.0, OTHER: None}


@given(
    places=st.integers(0, 3),
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.floats(0, IDLE_S * 1.5), st.booleans()), max_size=60
    ),
)
def test_nothing_is_lost_in_the_sum(places: int, steps: list[tuple[int, float, bool]]) -> None:
    table, now, received, answered = StreamTable(places), 0.0, 0, 0
    for stream, pause, answer in steps:
        now += pause
        table.receive(str(stream), None, now)
        received += 1
        if answer:
            table.answer(str(stream))
            answered += 1
        named = [row for row in table.snapshot() if row.name != OTHER]
        assert len(named) <= places
    counts = rows(table).values()
    assert (sum(r for r, _ in counts), sum(a for _, a in counts)) == (received, answered)
