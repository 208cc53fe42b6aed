"""The prefix: whatever fails, its answers stay, in order, until they are committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.item import Coordinates
from schemas.record import RawRecord
from schemas.result import Status
from workers.prefix import Prefix, next_offset
from workers.tickets import Answer, Ticket


def an_answer(offset: int, *, nbytes: int = 10, epoch: int = 1) -> Answer:
    record = RawRecord("in", 0, offset, b"", b"frame", 0)
    at = (record.topic, record.partition)
    coordinates = Coordinates(*at, record.offset)
    ticket = Ticket(record, at, coordinates, epoch, "default", received_at=0.0, nbytes=5)
    return Answer(ticket, "out", b"", bytes(nbytes), (), Status.OK, ready_at=0.0)


def holding(*answers: Answer) -> Prefix:
    prefix = Prefix()
    for answer in answers:
        prefix.put(answer)
    return prefix


def test_the_head_stays_until_it_is_committed() -> None:
    first, second, third = (an_answer(n) for n in (3, 4, 9))
    prefix = holding(first, second, third)
    assert prefix.head(2, 1_000) == prefix.head(2, 1_000) == [first, second]
    assert next_offset([first, second]) == 5
    prefix.committed([first, second])
    assert prefix.head(9, 1_000) == [third]
    assert next_offset([third]) == 10


def test_an_answer_larger_than_the_limit_goes_alone() -> None:
    small, large = an_answer(0, nbytes=10), an_answer(1, nbytes=500)
    prefix = holding(small, large, an_answer(2))
    assert prefix.head(9, 100) == [small]
    prefix.committed([small])
    assert prefix.head(9, 100) == [large]


def test_a_dead_letter_takes_the_place_of_a_result() -> None:
    first, second, letter = an_answer(0), an_answer(1), an_answer(1)
    prefix = holding(first, second)
    prefix.replace(second, letter)
    assert prefix.head(9, 1_000) == [first, letter]
    with pytest.raises(ValueError, match="not in deque"):
        prefix.replace(second, letter)


def test_only_the_beginning_can_be_committed() -> None:
    first, second = an_answer(0), an_answer(1)
    prefix = holding(first, second)
    with pytest.raises(ValueError, match="beginning"):
        prefix.committed([second])
    assert len(prefix) == 2


def test_answers_of_an_epoch_that_ended_are_taken_out() -> None:
    old, new = an_answer(7, epoch=1), an_answer(0, epoch=2)
    prefix = holding(old, new)
    assert prefix.prune(lambda answer: answer.ticket.epoch == 2) == [old]
    assert prefix.head(9, 1_000) == [new]


@given(
    sizes=st.lists(st.integers(0, 60), max_size=30),
    limits=st.tuples(st.integers(1, 5), st.integers(1, 100)),
    fates=st.lists(st.booleans()),
)
def test_any_mix_of_failures_commits_every_answer_once_in_order(
    sizes: list[int], limits: tuple[int, int], fates: list[bool]
) -> None:
    answers = [an_answer(n, nbytes=size) for n, size in enumerate(sizes)]
    prefix, done, script = holding(*answers), list[Answer](), list(fates)
    while chosen := prefix.head(*limits):
        assert len(chosen) <= limits[0]
        assert len(chosen) == 1 or sum(a.nbytes for a in chosen) <= limits[1]
        if script and script.pop():
            continue
        prefix.committed(chosen)
        done += chosen
    assert done == answers
