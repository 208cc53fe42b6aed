"""Order within a stream, independence between streams, and no state that stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sequencer import Sequencer, StreamKey

PARTITION = ("frames", 0)
KEY = StreamKey(PARTITION, 1, "cam")


def expecting(*offsets: int, limit: int = 64, key: StreamKey = KEY) -> Sequencer[str]:
    sequencer = Sequencer[str](limit)
    for offset in offsets:
        sequencer.expect(key, (offset, 0))
    return sequencer


def test_answers_in_order_leave_at_once() -> None:
    sequencer = expecting(4, 7)
    assert sequencer.complete(KEY, (4, 0), "a") == ["a"]
    assert sequencer.complete(KEY, (7, 0), "b") == ["b"]
    assert (sequencer.held, sequencer.streams) == (0, 0)


def test_an_early_answer_waits_for_the_one_before() -> None:
    sequencer = expecting(4, 7, 8)
    assert sequencer.complete(KEY, (8, 0), "c") == []
    assert sequencer.complete(KEY, (7, 0), "b") == []
    assert sequencer.held == 2
    assert sequencer.complete(KEY, (4, 0), "a") == ["a", "b", "c"]
    assert sequencer.held == 0


def test_a_dead_letter_releases_its_place_like_any_answer() -> None:
    sequencer = expecting(0, 1)
    assert sequencer.complete(KEY, (1, 0), "answer") == []
    assert sequencer.complete(KEY, (0, 0), "dead letter") == ["dead letter", "answer"]


def test_streams_do_not_wait_for_each_other() -> None:
    sequencer = expecting(0)
    neighbour = StreamKey(PARTITION, 1, "other")
    sequencer.expect(neighbour, (1, 0))
    assert sequencer.complete(neighbour, (1, 0), "mine") == ["mine"]


def test_the_same_stream_in_another_epoch_is_another_order() -> None:
    sequencer = expecting(0, 1)
    again = StreamKey(PARTITION, 2, "cam")
    sequencer.expect(again, (0, 0))
    assert sequencer.complete(again, (0, 0), "new") == ["new"]
    assert sequencer.complete(KEY, (1, 0), "old") == []


def test_a_dropped_epoch_returns_what_it_held_and_takes_nothing_more() -> None:
    sequencer = expecting(0, 1, 2, limit=1)
    sequencer.complete(KEY, (2, 0), "held")
    assert sequencer.full == {PARTITION}
    assert sequencer.drop(PARTITION, 1) == ["held"]
    assert (sequencer.held, sequencer.streams, sequencer.full) == (0, 0, frozenset())
    assert sequencer.complete(KEY, (0, 0), "late") == []
    assert sequencer.drop(PARTITION, 1) == []


def test_a_stream_at_its_limit_marks_its_partition_full_until_it_flows_again() -> None:
    sequencer = expecting(0, 1, 2, 3, limit=2)
    sequencer.complete(KEY, (1, 0), "b")
    assert sequencer.full == frozenset()
    sequencer.complete(KEY, (2, 0), "c")
    assert sequencer.full == {PARTITION}
    sequencer.complete(KEY, (0, 0), "a")
    assert sequencer.full == frozenset()


def test_what_was_not_expected_is_a_bug() -> None:
    sequencer = expecting(5, 6)
    with pytest.raises(ValueError, match=r"after \(6, 0\)"):
        sequencer.expect(KEY, (6, 0))
    with pytest.raises(ValueError, match=r"\(4, 0\)"):
        sequencer.complete(KEY, (4, 0), "?")
    sequencer.complete(KEY, (6, 0), "b")
    with pytest.raises(ValueError, match=r"\(6, 0\)"):
        sequencer.complete(KEY, (6, 0), "again")
    with pytest.raises(ValueError, match="≥ 1"):
        Sequencer[str](0)


def test_ten_thousand_streams_that_came_and_went_leave_nothing() -> None:
    sequencer = Sequencer[int](64)
    keys = [StreamKey(PARTITION, 1, f"cam-{n}") for n in range(10_000)]
    for offset, key in enumerate(keys):
        sequencer.expect(key, (offset, 0))
    assert sequencer.streams == 10_000
    for offset, key in reversed(list(enumerate(keys))):
        assert sequencer.complete(key, (offset, 0), offset) == [offset]
    assert (sequencer.streams, sequencer.held) == (0, 0)


@given(
    streams=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    data=st.data(),
)
def test_any_order_of_completion_leaves_each_stream_in_order(
    streams: list[int], data: st.DataObject
) -> None:
    sequencer = Sequencer[tuple[int, int]](64)
    keys = [StreamKey(("frames", s % 2), 1, str(s)) for s in streams]
    for offset, key in enumerate(keys):
        sequencer.expect(key, (offset, 0))

    left: list[tuple[int, int]] = []
    for done, offset in enumerate(data.draw(st.permutations(range(len(streams)))), start=1):
        left += sequencer.complete(keys[offset], (offset, 0), (streams[offset], offset))
        assert sequencer.held == done - len(left)

    assert sorted(offset for _, offset in left) == list(range(len(streams)))
    for stream in set(streams):
        offsets = [offset for s, offset in left if s == stream]
        assert offsets == sorted(offsets)
    assert (sequencer.streams, sequencer.held, sequencer.full) == (0, 0, frozenset())
