"""Segments in delivery: a record with many answers, settled once, with nobody overtaking."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline import metrics as m
from pipeline.ledger import PartitionId
from pipeline.segment import Sampling, SegmentFrame
from schemas.codec import read_result
from schemas.dead_letter import FrameMark, frame_mark
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from schemas.result import Status
from tests.fakes.office import (
    FRAME_BYTES,
    P0,
    P1,
    UNIX_US,
    Office,
    a_decoded,
    a_record,
    an_envelope,
    an_office,
    decode,
    suspects_after,
)
from workers.prefix import Prefix
from workers.tickets import Answer, OrderUnit, Segment

BROKEN = PoisonError(Reason.DECODE_FAILED, "the segment is damaged", stage="segment")


def a_segment_record(offset: int, *, partition: int = 0, **keys: object) -> object:
    value = an_envelope(encoding=Encoding.MP4, data=memoryview(b"video"), **keys)
    return a_record(offset, partition=partition, value=value)


def opened(office: Office, offset: int = 0, **keys: object) -> Segment:
    office.delivery.take(P0, [a_segment_record(offset, **keys)])
    return office.segments[-1]


def sources(answers: list[Answer]) -> list[tuple[int, int, int | None]]:
    """Offset, frame and frames of results."""
    found = [read_result(answer.value or b"").source for answer in answers]
    return [(each.offset, each.frame, each.frames) for each in found]


def test_each_frame_has_its_own_answer_and_the_record_one_settlement() -> None:
    office = an_office()
    segment = opened(office, seq=30)
    decode(office, segment, 0, 5, 10, last=True)
    office.finish(*office.items)
    first, *rest = office.acknowledge()
    assert sources([first, *rest]) == [(0, 0, None), (0, 1, None), (0, 2, 3)]
    results = [read_result(answer.value or b"") for answer in (first, *rest)]
    assert [result.seq for result in results] == [30, 35, 40]
    assert [result.captured_at_us - UNIX_US for result in results] == [0, 500_000, 1_000_000]
    assert {(result.width, result.height) for result in results} == {(8, 8)}
    assert office.books.ledger.to_commit() == {P0: 1}
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert len(office.delivery.segments) == 0


def test_nothing_is_committable_before_the_last_frame_is_settled() -> None:
    office = an_office()
    segment = opened(office)
    decode(office, segment, 0, 1)
    office.finish(*office.items)
    office.acknowledge()
    assert office.books.ledger.to_commit() == {P0: 0}, "its end was not reached"
    decode(office, segment, 2, last=True)
    assert office.books.ledger.to_commit() == {P0: 0}
    office.finish(*office.items)
    office.acknowledge()
    assert office.books.ledger.to_commit() == {P0: 1}


def test_records_of_the_partition_wait_until_the_segment_is_read_and_others_do_not() -> None:
    office = an_office()
    records = [a_segment_record(0), a_record(1), a_segment_record(2), a_record(3)]
    office.delivery.take(P0, records)
    office.delivery.take(P1, [a_record(0, partition=1)])
    assert [(i.coordinates.partition, i.coordinates.offset) for i in office.items] == [(1, 0)]
    assert office.delivery.full == {P0}
    decode(office, office.segments[0], 0, last=True)
    assert [i.coordinates.offset for i in office.items] == [0, 0, 1]
    assert len(office.segments) == 2, "the next segment is read, and what is behind it waits"
    assert office.delivery.full == {P0}
    decode(office, office.segments[1], 0, last=True)
    assert office.delivery.full == frozenset()
    office.finish(*reversed(office.items))
    answers = [a for a in office.acknowledge() if a.ticket.partition == P0]
    assert [offset for offset, _, _ in sources(answers)] == [0, 1, 2, 3]
    assert office.books.ledger.to_commit() == {P0: 4, P1: 1}
    assert office.conserved()


def test_a_broken_segment_gives_its_good_frames_and_one_dead_letter() -> None:
    office = an_office()
    segment = opened(office)
    decode(office, segment, 0, 1)
    assert office.delivery.segments.may_decode(segment, FRAME_BYTES)
    office.delivery.segments.break_off(segment, BROKEN, FRAME_BYTES)
    office.delivery.segments.end(segment)
    assert office.queue == [], "the dead letter does not overtake the frames before it"
    office.finish(*office.items)
    *results, letter = office.acknowledge()
    assert sources(results) == [(0, 0, None), (0, 1, None)]
    assert letter.verdict is Reason.DECODE_FAILED
    assert letter.value == segment.ticket.record.value
    assert frame_mark(letter.headers) == FrameMark(None, 2)
    assert office.books.ledger.to_commit() == {P0: 1}
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert office.conserved()


def test_a_segment_that_cannot_be_opened_is_one_dead_letter() -> None:
    office = an_office()
    segment = opened(office)
    office.delivery.segments.break_off(segment, BROKEN, None)
    office.delivery.segments.end(segment)
    (letter,) = office.acknowledge()
    assert frame_mark(letter.headers) == FrameMark(None, 0)
    assert office.books.ledger.to_commit() == {P0: 1}
    assert office.conserved()


def test_a_frame_that_fails_alone_is_a_dead_letter_of_its_own() -> None:
    office = an_office()
    segment = opened(office)
    decode(office, segment, 0, 1, last=True)
    first, second = office.items
    office.finish(first)
    office.finish(second, error=PoisonError(Reason.INFERENCE_FAILED, "no", stage="infer"))
    result, letter = office.acknowledge()
    assert sources([result]) == [(0, 0, None)]
    assert frame_mark(letter.headers) == FrameMark(1, 2)
    assert office.books.ledger.to_commit() == {P0: 1}


def test_frames_expire_and_are_skipped_each_for_itself() -> None:
    office = an_office(sample_every=2)
    segment = opened(office, seq=4, ttl_ms=250)
    office.clock.advance(0.2)
    # Frame 0 has 250 ms from its capture; the clock is at 200, and then at 300.
    decode(office, segment, 0, 1)
    office.clock.advance(0.1)
    assert office.delivery.segments.may_decode(segment, FRAME_BYTES)
    late = SegmentFrame(2, 0, 8, 8, memoryview(bytes(FRAME_BYTES)), last=True)
    office.delivery.segments.take_frame(segment, late, FRAME_BYTES)
    office.delivery.segments.end(segment)
    office.finish(*office.items)
    answers = office.acknowledge()
    assert [answer.verdict for answer in answers] == [Status.OK, Status.SKIPPED, Status.EXPIRED]
    assert sources(answers) == [(0, 0, None), (0, 1, None), (0, 2, 3)]
    assert office.conserved()
    assert office.books.flow.bytes == 0


def test_the_segments_own_sampling_comes_before_the_routes() -> None:
    office = an_office()
    assert opened(office).sampling == Sampling()
    office = an_office()
    assert opened(office, sample_every=3).sampling == Sampling(every=3)
    office = an_office()
    assert opened(office, sample_fps=2.5).sampling == Sampling(1, 2.5)


# --- credits ------------------------------------------------------------------------------------


def test_decoded_bytes_are_held_until_they_are_inferred_and_the_place_until_it_is_settled() -> None:
    office = an_office()
    segment = opened(office)
    record_bytes = office.books.flow.bytes
    decode(office, segment, 0, 1)
    assert office.books.flow.bytes == record_bytes + 2 * FRAME_BYTES
    office.finish(office.items[0])
    assert office.books.flow.bytes == record_bytes + FRAME_BYTES
    assert office.delivery.in_flight == 2
    office.acknowledge()
    assert office.delivery.in_flight == 1


def test_only_the_first_segment_goes_on_without_credits_and_one_frame_at_a_time() -> None:
    office = an_office()
    office.delivery.take(P0, [a_segment_record(0)])
    office.delivery.take(P1, [a_segment_record(0, partition=1)])
    oldest, other = office.segments
    office.books.flow.take(1 << 30)
    decode(office, oldest, 0)
    assert not office.delivery.segments.may_decode(other, FRAME_BYTES)
    assert not office.delivery.segments.may_decode(oldest, FRAME_BYTES), "one is inside"
    office.finish(*office.items)
    decode(office, oldest, 1, last=True)
    assert not office.delivery.segments.may_decode(other, FRAME_BYTES), "the oldest is not settled"
    office.finish(*office.items)
    office.acknowledge()
    assert office.delivery.segments.may_decode(other, FRAME_BYTES)


def test_a_segment_that_is_not_read_yet_does_not_keep_the_right_from_those_that_are() -> None:
    """It was claimed and is fetched last, and may wait for a place that the other one has."""
    office = an_office(unit=OrderUnit.PARTITION)
    office.delivery.take(P0, [a_segment_record(0)])
    office.delivery.take(P1, [a_segment_record(0, partition=1)])
    _, read = office.segments
    decode(office, read, 0)
    office.finish(*office.items)
    # All credits are held, and the answers they are held for are not sent before the segment's end.
    office.books.flow.take(1 << 30)
    decode(office, read, 1, last=True)


def test_what_waits_behind_a_segment_holds_its_bytes() -> None:
    office = an_office()
    office.delivery.take(P0, [a_segment_record(0), a_record(1), a_record(2)])
    behind = 2 * len(a_record(1).value or b"")
    alone = an_office()
    segment = opened(alone)
    assert office.books.flow.bytes == alone.books.flow.bytes + behind
    assert office.delivery.in_flight == 0
    office.delivery.take_no_more([P0])
    assert office.books.flow.bytes == len(segment.ticket.record.value or b"")


def test_a_worker_that_was_idle_has_not_stalled_when_a_segments_first_frame_comes() -> None:
    office = an_office()
    segment = opened(office)
    office.clock.advance(1_000.0)
    assert office.delivery.segments.may_decode(segment, FRAME_BYTES)
    assert office.delivery.last_progress_at == office.clock()
    office.clock.advance(1_000.0)
    office.delivery.segments.take_frame(segment, a_decoded(0), FRAME_BYTES)
    assert office.delivery.last_progress_at == office.clock(), "though nothing has settled"


def test_a_frame_of_another_size_than_expected_is_accounted_for() -> None:
    office = an_office()
    segment = opened(office)
    assert office.delivery.segments.may_decode(segment, 10)
    office.delivery.segments.take_frame(segment, a_decoded(0, last=True), 10)
    office.delivery.segments.end(segment)
    office.finish(*office.items)
    office.acknowledge()
    assert (office.books.flow.bytes, office.delivery.in_flight) == (0, 0)


# --- revoked in the middle ----------------------------------------------------------------------


def test_a_partition_that_leaves_takes_its_segment_and_what_waits_along() -> None:
    office = an_office()
    office.delivery.take(P0, [a_segment_record(0), a_record(1)])
    segment = office.segments[0]
    decode(office, segment, 0, 1)
    office.finish(office.items[0])
    office.delivery.revoke([P0])
    assert not office.delivery.segments.is_open(segment)
    assert office.delivery.segments.may_decode(segment, FRAME_BYTES), "it was asked for before"
    office.delivery.segments.take_frame(segment, a_decoded(2), FRAME_BYTES)
    office.delivery.segments.end(segment)
    assert office.delivery.full == frozenset()
    office.acknowledge()
    office.finish(*office.items)
    assert office.acknowledge() == []
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
    assert len(office.delivery.segments) == 0
    assert office.conserved()


def test_the_next_epoch_reads_the_segment_again_whatever_the_last_one_still_does() -> None:
    office = an_office()
    before = opened(office)
    decode(office, before, 0)
    office.delivery.revoke([P0])
    office.delivery.assign([P0])
    again = opened(office)
    office.delivery.segments.break_off(before, BROKEN, None)
    office.delivery.segments.end(before)
    assert office.delivery.full == {P0}, "the new one is being read"
    decode(office, again, 0, last=True)
    office.finish(*office.items)
    assert sources(office.acknowledge()) == [(0, 0, 1)]
    assert office.books.ledger.to_commit() == {P0: 1}
    assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)


def test_a_worker_that_ends_in_the_middle_settles_nothing() -> None:
    office = an_office()
    segment = opened(office)
    decode(office, segment, 0)
    office.finish(*office.items)
    office.acknowledge()
    office.delivery.segments.end(segment)
    assert office.books.ledger.to_commit() == {P0: 0}
    assert office.books.ledger.incomplete() == 1


def test_what_waits_behind_a_segment_is_given_back_when_the_worker_drains() -> None:
    office = an_office()
    office.delivery.take(P0, [a_segment_record(0), a_record(1)])
    office.delivery.take_no_more()
    decode(office, office.segments[0], 0, last=True)
    office.finish(*office.items)
    office.acknowledge()
    assert office.books.ledger.to_commit() == {P0: 1}
    assert office.books.ledger.incomplete() == 0


# --- suspects -----------------------------------------------------------------------------------


def test_a_suspect_is_acquitted_when_all_of_it_went_through(tmp_path: Path) -> None:
    office = an_office(suspects=suspects_after(tmp_path, [0]))
    segment = opened(office)
    decode(office, segment, 0)
    assert office.items[0].solo
    office.finish(*office.items)
    assert office.suspects.count == 1, "the rest of it is still to come"
    decode(office, segment, 1, last=True)
    office.finish(*office.items)
    assert [read_result(a.value or b"").attempts for a in office.acknowledge()] == [2, 2]
    assert office.suspects.count == 0


def test_a_segment_that_crashed_workers_twice_is_never_opened(tmp_path: Path) -> None:
    office = an_office(suspects=suspects_after(tmp_path, [0], [0], [0]))
    office.delivery.take(P0, [a_segment_record(0)])
    assert office.segments == []
    (letter,) = office.acknowledge()
    assert letter.verdict in (Reason.CRASH, Reason.TIMEOUT)
    assert frame_mark(letter.headers) == FrameMark(None, None)


# --- exactly once -------------------------------------------------------------------------------


def test_a_transaction_holds_whole_records_only() -> None:
    office = an_office(unit=OrderUnit.PARTITION)
    records = [a_record(0), a_segment_record(1), a_record(2)]
    office.delivery.take(P0, records)
    segment, prefix = office.segments[0], Prefix()
    decode(office, segment, 0, 1)
    office.finish(*office.items)
    for answer in office.queue:
        prefix.put(answer)
    assert len(prefix) == 3
    assert [a.ticket.record.offset for a in prefix.head(9, 1 << 20)] == [0]
    office.queue.clear()
    decode(office, segment, 2, last=True)
    office.finish(*office.items)
    for answer in office.queue:
        prefix.put(answer)
    assert [a.ticket.record.offset for a in prefix.head(2, 1 << 20)] == [0]
    assert [a.ticket.record.offset for a in prefix.head(4, 1 << 20)] == [0, 1, 1, 1]
    assert [a.ticket.record.offset for a in prefix.head(9, 1 << 20)] == [0, 1, 1, 1, 2]
    prefix.committed(prefix.head(2, 1 << 20))
    whole = prefix.head(1, 1)
    assert [a.ticket.place for a in whole] == [(1, 0), (1, 1), (1, 2)], "however large it is"


# --- everything at once -------------------------------------------------------------------------


class Conservation(RuleBasedStateMachine):
    """Records and frames come, finish, fail, are acknowledged and revoked in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.office = an_office()
        self.next = {P0: 0, P1: 0}
        self.frames: dict[Segment, int] = {}
        self.totals: dict[tuple[PartitionId, int, int], int] = {}
        self.acknowledged: list[Answer] = []
        self.watermarks: dict[tuple[PartitionId, int | None], int] = {}
        self.random = random.Random(0)

    def live(self) -> list[Segment]:
        return [s for s in self.office.segments if not s.parts.ended]

    @rule(partition=st.sampled_from([P0, P1]), is_segment=st.booleans())
    def receive(self, partition: PartitionId, is_segment: bool) -> None:
        if partition in self.office.delivery.full and self.random.random() < 0.5:
            return
        offset = self.next[partition]
        self.next[partition] += 1
        make = a_segment_record if is_segment else a_record
        self.office.delivery.take(partition, [make(offset, partition=partition[1])])

    @precondition(lambda self: self.live())
    @rule(data=st.data(), last=st.booleans())
    def decode(self, data: st.DataObject, last: bool) -> None:
        segment = data.draw(st.sampled_from(self.live()))
        if not self.office.delivery.segments.is_open(segment):
            self.office.delivery.segments.end(segment)
            return
        index = self.frames.get(segment, 0)
        self.frames[segment] = index + 1
        decode(self.office, segment, index, last=last)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def break_off(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(self.live()))
        self.office.delivery.segments.break_off(segment, BROKEN, None)
        self.office.delivery.segments.end(segment)

    @precondition(lambda self: self.office.items)
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        item = data.draw(st.sampled_from(self.office.items))
        self.office.finish(item, error=BROKEN if fails else None)

    @rule()
    def acknowledge(self) -> None:
        self.acknowledged += [
            answer for answer in self.office.acknowledge() if self.office.is_live(answer)
        ]

    @rule(partition=st.sampled_from([P0, P1]))
    def reassign(self, partition: PartitionId) -> None:
        offset = self.office.books.ledger.watermark(partition)
        self.office.delivery.revoke([partition])
        self.office.delivery.assign([partition])
        # What was not settled comes again.
        self.next[partition] = self.next[partition] if offset is None else offset

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        assert self.office.conserved()

    @invariant()
    def no_record_is_committable_before_all_of_it_is_settled(self) -> None:
        for segment in self.office.segments:
            if not self.office.delivery.segments.is_open(segment) or segment.parts.done:
                continue
            watermark = self.office.books.ledger.watermark(segment.ticket.partition)
            assert watermark is not None
            assert watermark <= segment.ticket.record.offset

    def teardown(self) -> None:
        office = self.office
        while self.live() or office.items or office.queue:
            for segment in self.live():
                self.frames[segment] = self.frames.get(segment, 0)
                if office.delivery.segments.is_open(segment):
                    decode(office, segment, self.frames[segment], last=True)
                else:
                    office.delivery.segments.end(segment)
            office.finish(*list(office.items))
            self.acknowledge()
        assert office.conserved()
        assert (office.delivery.in_flight, office.books.flow.bytes) == (0, 0)
        assert (len(office.delivery.segments), office.books.ledger.incomplete()) == (0, 0)
        assert office.metrics.total(m.RECEIVED) >= len(self.acknowledged)
        self.check_answers()

    def check_answers(self) -> None:
        """Of each epoch: frames of a stream in order, each once, none missing."""
        by_epoch: dict[tuple[PartitionId, int], list[Answer]] = {}
        for answer in self.acknowledged:
            key = (answer.ticket.partition, answer.ticket.epoch)
            by_epoch.setdefault(key, []).append(answer)
        for answers in by_epoch.values():
            places = [answer.ticket.place for answer in answers]
            assert places == sorted(set(places))
            for answer in answers:
                offset, number = answer.ticket.place
                assert [p for p in places if p[0] == offset][: number + 1] == [
                    (offset, n) for n in range(number + 1)
                ]


TestConservation = Conservation.TestCase
TestConservation.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("unit", list(OrderUnit))
def test_any_unit_of_order_settles_a_segment(unit: OrderUnit) -> None:
    office = an_office(unit=unit)
    segment = opened(office)
    decode(office, segment, 0, 1, 2, last=True)
    office.finish(*reversed(office.items))
    assert len(office.acknowledge()) == 3
    assert office.books.ledger.to_commit() == {P0: 1}
