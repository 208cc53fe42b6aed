"""Credits: limits, hysteresis, and records larger than all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.flow import Flow

A, B = ("frames", 0), ("frames", 1)


def test_intake_closes_at_the_item_limit_and_opens_at_low_water() -> None:
    flow = Flow(max_items=4, max_bytes=1_000)
    for _ in range(4):
        flow.take(10)
    assert (flow.open, flow.room, flow.items, flow.bytes) == (False, 0, 4, 40)

    flow.give(10)
    assert flow.open, "3 of 4 is the low water"
    assert flow.room == 1


def test_credits_of_many_records_are_those_of_each() -> None:
    together, each = Flow(max_items=8, max_bytes=1_000), Flow(max_items=8, max_bytes=1_000)
    together.take(10, 200, 30)
    for nbytes in (10, 200, 30):
        each.take(nbytes)
    assert (together.items, together.bytes, together.room) == (3, 240, each.room)
    together.give(10, 30)
    assert (together.items, together.bytes) == (1, 200)
    together.give()
    assert together.items == 1


def test_intake_closes_at_the_byte_limit_and_opens_at_low_water() -> None:
    flow = Flow(max_items=100, max_bytes=100)
    flow.take(60)
    flow.take(40)
    assert not flow.open
    flow.give(40)
    assert flow.open


def test_intake_stays_closed_between_high_and_low_water() -> None:
    flow = Flow(max_items=8, max_bytes=1_000)
    for _ in range(8):
        flow.take(1)
    flow.give(1)
    assert not flow.open
    flow.give(1)
    assert flow.open


def test_room_asks_for_no_more_bytes_than_are_free() -> None:
    flow = Flow(max_items=100, max_bytes=1_000)
    assert flow.room == 100, "no size is known yet"
    flow.take(100)
    assert flow.room == 9


def test_a_record_larger_than_the_limit_passes_when_nothing_is_in_flight() -> None:
    flow = Flow(max_items=10, max_bytes=50)
    assert flow.room >= 1
    flow.take(5_000)
    assert not flow.open
    flow.give(5_000)
    assert flow.open
    assert flow.room == 1, "one at a time while records are that large"


def test_a_limit_of_one_item_lets_one_pass_at_a_time() -> None:
    flow = Flow(max_items=1, max_bytes=1)
    flow.take(0)
    assert not flow.open
    flow.give(0)
    assert flow.open


def test_full_partitions_and_closed_intake_are_not_polled() -> None:
    flow = Flow(max_items=1, max_bytes=10)
    assert flow.wanted([A, B], frozenset([A])) == [B]
    flow.take(1)
    assert flow.wanted([A, B], frozenset()) == []


def test_credits_given_twice_are_a_bug() -> None:
    flow = Flow(max_items=2, max_bytes=10)
    flow.take(3)
    with pytest.raises(ValueError, match="twice"):
        flow.give(4)
    flow.give(3)
    with pytest.raises(ValueError, match="twice"):
        flow.give(0)
    with pytest.raises(ValueError, match="≥ 1"):
        Flow(max_items=0, max_bytes=1)


@given(
    max_items=st.integers(1, 20),
    max_bytes=st.integers(1, 500),
    steps=st.lists(st.one_of(st.integers(0, 700), st.none()), max_size=200),
)
def test_no_sequence_of_credits_can_block_for_good(
    max_items: int, max_bytes: int, steps: list[int | None]
) -> None:
    flow = Flow(max_items, max_bytes)
    taken: list[int] = []
    for step in steps:
        if step is None and taken:
            flow.give(taken.pop(0))
        elif step is not None and flow.open:
            assert 1 <= flow.room <= max_items - len(taken)
            flow.take(step)
            taken.append(step)
        assert (flow.items, flow.bytes) == (len(taken), sum(taken))
        assert len(taken) <= max_items
        assert flow.open or taken, "closed with nothing in flight: nothing would open it"
        assert flow.open == (flow.room > 0)
