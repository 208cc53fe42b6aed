"""Admission and delivery together, without a broker: one account for every record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace
from structlog.testing import capture_logs

from pipeline import metrics as m
from pipeline.item import Outcome
from pipeline.ledger import PartitionId
from schemas.codec import read_result
from schemas.errors import PoisonError, Reason
from schemas.result import Status
from tests.fakes.engine import MODEL
from tests.fakes.office import (
    JPEG,
    P0,
    P1,
    UNIX_US,
    Office,
    a_record,
    an_envelope,
    an_office,
    suspects_after,
)
from workers.tickets import OrderUnit


def test_a_frame_goes_to_the_engine_and_is_committable_once_acknowledged() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(5)])
    (item,) = office.items
    assert (item.coordinates.offset, item.epoch, item.route) == (5, 1, "default")
    assert (item.header.width, item.bucket.name, item.nbytes) == (16, "b", len(JPEG))
    assert office.delivery.in_flight == 1

    office.finish(item)
    assert office.books.ledger.watermark(P0) == 5, "made, but not acknowledged"
    (answer,) = office.acknowledge()
    assert office.books.ledger.watermark(P0) == 6
    result = read_result(answer.value or b"")
    assert (result.status, result.width, result.model) == (Status.OK, 16, MODEL)
    assert (answer.topic, answer.key) == ("out", b"cam")
    assert office.delivery.in_flight == 0
    assert office.conserved()


def test_answers_of_a_stream_leave_in_order_and_dead_letters_release_their_place() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(n) for n in range(3)])
    first, second, third = office.items
    office.finish(third)
    assert office.queue == []
    office.finish(first, error=PoisonError(Reason.DECODE_FAILED, "bad", stage="decode"))
    assert [a.ticket.record.offset for a in office.queue] == [0]
    office.finish(second)
    assert [(a.ticket.record.offset, a.topic) for a in office.queue] == [
        (0, "dlq"), (1, "out"), (2, "out"),
    ]  # fmt: skip


def test_unreadable_records_wait_for_nobody() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(0), a_record(1, value=b"?"), a_record(2, value=None)])
    reasons = [answer.verdict for answer in office.queue]
    assert reasons == [Reason.BAD_ENVELOPE, Reason.EMPTY_RECORD]
    assert [a.value for a in office.queue] == [b"?", None]
    office.acknowledge()
    assert office.books.ledger.watermark(P0) == 0, "the frame before them is still out"


def test_within_a_partition_even_unreadable_records_wait_for_those_before_them() -> None:
    office = an_office(unit=OrderUnit.PARTITION)
    office.delivery.take(P0, [a_record(0), a_record(1, value=b"?"), a_record(2, key=b"x")])
    office.delivery.take(P1, [a_record(0, partition=1, value=None)])
    assert [a.ticket.partition for a in office.queue] == [P1]
    first, third = office.items
    office.finish(third)
    assert len(office.queue) == 1
    office.finish(first)
    assert [a.ticket.record.offset for a in office.queue[1:]] == [0, 1, 2]


def test_a_poison_picture_waits_for_its_stream_but_no_other_does() -> None:
    office = an_office()
    office.delivery.take(
        P0, [a_record(0), a_record(1, value=JPEG[:20]), a_record(2, key=b"x", value=JPEG[:20])]
    )
    assert [a.ticket.record.offset for a in office.queue] == [2]
    office.finish(*office.items)
    assert [a.ticket.record.offset for a in office.queue] == [2, 0, 1]


def test_a_frame_whose_time_is_up_never_costs_the_engine() -> None:
    office = an_office()
    office.clock.advance(10.0)
    value = an_envelope(ttl_ms=9_999, meta={"k": "v"})
    office.delivery.take(
        P0, [a_record(0, value=value), a_record(1, value=an_envelope(ttl_ms=10_001))]
    )
    (answer,) = office.queue
    result = read_result(answer.value or b"")
    assert (result.status, result.meta, result.width) == (Status.EXPIRED, {"k": "v"}, 0)
    (item,) = office.items
    assert item.deadline_at == pytest.approx(1_010.001)


def test_a_stamp_far_in_the_future_counts_as_receipt_time() -> None:
    office = an_office()
    stamps = (UNIX_US + 4_900_000, UNIX_US + 5_100_000)
    office.delivery.take(
        P0,
        [
            a_record(n, value=an_envelope(captured_at_us=stamp, ttl_ms=1_000))
            for n, stamp in enumerate(stamps)
        ],
    )
    near, far = office.items
    assert (near.clock_skew, far.clock_skew) == (False, True)
    assert near.deadline_at == pytest.approx(1_005.9)
    assert far.deadline_at == pytest.approx(1_001.0)
    assert office.metrics.value(m.CLOCK_SKEWS, route="default") == 1


def test_only_every_nth_frame_is_looked_at() -> None:
    office = an_office(sample_every=2)
    office.delivery.take(P0, [a_record(n, value=an_envelope(seq=n)) for n in range(4)])
    assert [item.frame.seq for item in office.items] == [0, 2]
    office.finish(*office.items)
    statuses = [read_result(a.value or b"").status.value for a in office.queue]
    assert statuses == ["ok", "skipped", "ok", "skipped"]


def test_a_key_that_contradicts_the_envelope_is_served_and_counted() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(0, key=b"other", value=an_envelope())])
    office.finish(*office.items)
    assert office.queue[0].key == b"other"
    assert office.metrics.value(m.KEY_MISMATCHES, route="default") == 1


def test_a_revoked_partition_gives_up_what_it_held_and_late_outcomes_change_nothing() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(0), a_record(1)])
    office.delivery.take(P1, [a_record(0, partition=1)])
    first, second, other = office.items
    office.finish(second)
    office.delivery.revoke([P0])
    assert office.delivery.in_flight == 2, "the frame inside the engine keeps its credit"

    office.delivery.assign([P0])
    office.finish(first, other)
    assert [a.ticket.partition for a in office.queue] == [P1]
    assert office.metrics.value(m.LATE_COMPLETIONS) == 1
    assert office.books.ledger.watermark(P0) is None
    office.acknowledge()
    assert office.delivery.in_flight == 0
    assert office.conserved()
    office.delivery.take(P0, [a_record(0)])
    assert len(office.items) == 1, "received again in the new epoch"


def test_offsets_that_go_back_begin_a_new_account() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(100)])
    office.delivery.take(P0, [a_record(3)])
    assert office.books.ledger.watermark(P0) == 3
    office.finish(*office.items)
    office.acknowledge()
    assert office.books.ledger.watermark(P0) == 4
    assert office.metrics.total(m.ABANDONED) == 1
    assert office.conserved()


def test_an_error_that_nobody_foresaw_costs_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    office = an_office()

    def surprise(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr("workers.admission.probe", surprise)
    office.delivery.take(P0, [a_record(0)])
    (answer,) = office.queue
    assert answer.verdict is Reason.INTERNAL_ERROR
    assert "ZeroDivisionError" in str(dict(answer.headers)["fl-detail"])


def test_a_replayed_record_counts_its_earlier_attempts() -> None:
    office = an_office()
    replayed = (("fl-reason", b"decode_failed"), ("fl-attempts", b"2"))
    office.delivery.take(P0, [replace(a_record(0), headers=replayed)])
    office.delivery.take(P0, [replace(a_record(1, value=b"no frame"), headers=replayed)])
    office.delivery.take(P0, [a_record(2)])
    office.finish(*office.items)
    dead, first, fresh = office.queue
    assert read_result(first.value or b"").attempts == 3
    assert dead.headers[-3] == ("fl-attempts", b"3")
    assert read_result(fresh.value or b"").attempts == 1


def test_a_suspect_runs_alone_and_is_acquitted_when_it_passes(tmp_path: Path) -> None:
    office = Office(suspects=suspects_after(tmp_path, [0], [1]))
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_record(offset) for offset in range(3)])
    assert [item.solo for item in office.items] == [True, True, False]
    assert office.suspects.count == 2
    office.finish(*office.items)
    office.acknowledge()
    assert office.suspects.count == 0


def test_a_convicted_record_never_reaches_the_engine_and_keeps_its_place(tmp_path: Path) -> None:
    office = Office(suspects=suspects_after(tmp_path, [1], [1], [1]))
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_record(offset) for offset in range(3)])
    assert [item.frame.seq for item in office.items] == [0, 2]
    assert not office.queue, "it waits for the frame before it"
    office.finish(*office.items)
    first, convicted, last = office.queue
    assert (first.verdict, convicted.verdict, last.verdict) == (
        Status.OK, Reason.CRASH, Status.OK,
    )  # fmt: skip
    assert dict(convicted.headers)["fl-attempts"] == b"3"
    office.acknowledge()
    assert office.suspects.count == 1, "until its answer is committed"
    office.delivery.committed(P0, office.books.ledger.epoch(P0) or 0, 3)
    office.delivery.assign([P1])
    assert office.suspects.count == 0


def test_a_suspect_that_expires_in_the_queue_is_not_acquitted(tmp_path: Path) -> None:
    office = Office(suspects=suspects_after(tmp_path, [0]))
    office.delivery.assign([P0])
    office.delivery.take(P0, [a_record(0)])
    (item,) = office.items
    office.delivery.complete([Outcome(item, Status.EXPIRED)])
    assert office.suspects.count == 1


async def test_waiting_for_settlement_ends_with_the_last_one() -> None:
    office = an_office()
    office.delivery.take(P0, [a_record(0)])
    office.delivery.take(P1, [a_record(0, partition=1)])
    await asyncio.wait_for(office.delivery.wait_settled([]), 180)
    waiting = asyncio.ensure_future(office.delivery.wait_settled([P0]))
    office.finish(office.items[0])
    await asyncio.sleep(0)
    assert not waiting.done()
    office.acknowledge()
    await asyncio.wait_for(waiting, 180)
    everything = asyncio.ensure_future(office.delivery.wait_settled())
    await asyncio.sleep(0)
    office.delivery.revoke([P1])
    await asyncio.wait_for(everything, 180)


class DeliveryMachine(RuleBasedStateMachine):
    """Any interleaving of receipt, completion, acknowledgement and rebalance."""

    def __init__(self) -> None:
        super().__init__()
        self.office = an_office()
        self.next = {P0: 0, P1: 0}
        self.left: dict[tuple[PartitionId, int, bytes], int] = {}

    @rule(
        partition=st.sampled_from([P0, P1]),
        records=st.lists(
            st.tuples(
                st.sampled_from([b"a", b"b", None]), st.sampled_from([JPEG, b"?", JPEG[:20]])
            ),
            min_size=1, max_size=4,
        ),
    )  # fmt: skip
    def take(self, partition: PartitionId, records: list[tuple[bytes | None, bytes]]) -> None:
        if self.office.books.ledger.epoch(partition) is None:
            return
        start = self.next[partition]
        self.next[partition] += len(records)
        self.office.delivery.take(
            partition,
            [
                a_record(start + n, partition=partition[1], key=key, value=value)
                for n, (key, value) in enumerate(records)
            ],
        )

    @precondition(lambda self: self.office.items)
    @rule(data=st.data(), bad=st.booleans())
    def complete(self, data: st.DataObject, bad: bool) -> None:
        item = data.draw(st.sampled_from(self.office.items))
        error = PoisonError(Reason.DECODE_FAILED, "bad", stage="decode") if bad else None
        self.office.finish(item, error=error)

    @rule()
    def acknowledge(self) -> None:
        for answer in self.office.acknowledge():
            ticket = answer.ticket
            if ticket.key is None:
                continue
            place = (ticket.partition, ticket.epoch, ticket.record.key or b"")
            assert self.left.get(place, -1) < ticket.record.offset, "left out of order"
            self.left[place] = ticket.record.offset

    @rule(partition=st.sampled_from([P0, P1]))
    def lose(self, partition: PartitionId) -> None:
        watermark = self.office.books.ledger.watermark(partition)
        self.office.delivery.revoke([partition])
        if watermark is not None:
            self.next[partition] = watermark

    @rule(partition=st.sampled_from([P0, P1]))
    def gain(self, partition: PartitionId) -> None:
        if self.office.books.ledger.epoch(partition) is None:
            self.office.delivery.assign([partition])

    @invariant()
    def nothing_is_created_or_lost(self) -> None:
        assert self.office.conserved()

    def teardown(self) -> None:
        while self.office.items:
            self.office.finish(self.office.items[-1])
        self.office.acknowledge()
        assert self.office.delivery.in_flight == 0
        assert self.office.books.ledger.incomplete() == 0
        assert (self.office.books.sequencer.held, self.office.books.sequencer.streams) == (0, 0)
        assert self.office.delivery._desk._inside == {}


TestDeliveryMachine = DeliveryMachine.TestCase
TestDeliveryMachine.settings = settings(max_examples=40, stateful_step_count=30)


def test_the_log_says_of_a_dead_letter_what_is_wrong_with_it() -> None:
    office = an_office()
    with capture_logs() as lines:
        office.delivery.take(P0, [a_record(0, value=b"no picture")])
    (line,) = (line for line in lines if line["event"] == "dead_letter")
    (letter,) = office.queue
    assert line["reason"] == letter.verdict.value
    assert line["detail"]
    assert line["detail"] == dict(letter.headers)["fl-detail"].decode()
