"""A record with several answers is settled once: with the last of them, when no more can come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.parts import Parts


def test_a_record_is_done_when_its_last_part_is_settled() -> None:
    parts = Parts()
    assert [parts.take(), parts.take()] == [0, 1]
    parts.answer()
    parts.settle()
    assert (parts.inside, parts.done) == (1, False)
    parts.end()
    assert not parts.done
    parts.answer()
    assert not parts.done
    parts.settle()
    assert parts.done


def test_settled_parts_are_not_the_end() -> None:
    parts = Parts()
    parts.take()
    parts.answer()
    parts.settle()
    assert not parts.done, "its reader may find another frame"
    parts.end()
    assert parts.done


def test_what_cannot_be_is_a_bug() -> None:
    parts = Parts()
    with pytest.raises(ValueError, match="answered"):
        parts.answer()
    parts.take()
    with pytest.raises(ValueError, match="settled"):
        parts.settle()
    parts.end()
    with pytest.raises(ValueError, match="after the end"):
        parts.take()


@given(st.lists(st.sampled_from(["take", "answer", "settle", "end"]), max_size=40))
def test_it_is_done_exactly_when_nothing_is_left(steps: list[str]) -> None:
    parts, taken, answered, settled, ended = Parts(), 0, 0, 0, False
    for step in steps:
        allowed = {
            "take": not ended,
            "answer": answered < taken,
            "settle": settled < answered,
            "end": True,
        }[step]
        if not allowed:
            with pytest.raises(ValueError, match=r"."):
                getattr(parts, step)()
            continue
        getattr(parts, step)()
        taken += step == "take"
        answered += step == "answer"
        settled += step == "settle"
        ended = ended or step == "end"
        assert parts.inside == taken - answered
        assert parts.done == (ended and settled == taken)
