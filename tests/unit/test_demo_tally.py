"""What was sent and what was answered, compared by coordinates."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from frameloom.demo_tally import reconcile
from schemas.result import Status
from tests.builders_demo import a_result, answered, at, by_coordinates, given_up, sent


def test_every_kind_of_answer_counts() -> None:
    records = by_coordinates(*(sent(i) for i in range(4)))
    answers = [
        answered(a_result(0)),
        answered(a_result(1, status=Status.EXPIRED)),
        answered(a_result(2, status=Status.SKIPPED)),
        given_up(3),
    ]
    balance = reconcile(records, answers)
    assert (balance.received, balance.answered, balance.lost) == (4, 4, ())
    assert balance.duplicates == balance.unknown == balance.out_of_order == 0


def test_what_has_no_answer_is_lost_by_name() -> None:
    balance = reconcile(by_coordinates(sent(0), sent(1)), [answered(a_result(1))])
    assert balance.lost == (at(0),)
    assert balance.answered == 1


def test_a_second_answer_is_a_duplicate_and_not_disorder() -> None:
    records = by_coordinates(sent(0), sent(1))
    answers = [answered(a_result(0)), answered(a_result(1)), answered(a_result(0))]
    balance = reconcile(records, answers)
    assert balance.duplicates == 1
    assert balance.out_of_order == 0


def test_an_answer_to_nothing_is_unknown() -> None:
    balance = reconcile(by_coordinates(sent(0)), [answered(a_result(0)), answered(a_result(9))])
    assert balance.unknown == 1


def test_order_counts_within_stream_and_partition_only() -> None:
    records = by_coordinates(sent(0, "a"), sent(1, "b"), sent(2, "a"), sent(0, "a", partition=1))
    answers = [
        answered(a_result(2, "a")),
        answered(a_result(1, "b")),
        answered(a_result(0, "a", partition=1)),
        answered(a_result(0, "a")),
    ]
    assert reconcile(records, answers).out_of_order == 1


def test_dead_letters_are_not_compared_with_results() -> None:
    records = by_coordinates(sent(0), sent(1))
    assert reconcile(records, [answered(a_result(1)), given_up(0, "cam")]).out_of_order == 0


@given(st.integers(0, 40), st.integers(0, 40), st.randoms(use_true_random=False))
def test_received_is_answered_plus_lost(received: int, answers: int, rng: random.Random) -> None:
    records = by_coordinates(*(sent(i) for i in range(received)))
    given_answers = [answered(a_result(rng.randrange(50))) for _ in range(answers)]
    balance = reconcile(records, given_answers)
    assert balance.received == balance.answered + len(balance.lost)
    assert balance.answered + balance.unknown + balance.duplicates == answers
