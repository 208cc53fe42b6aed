"""A segment is whole when every frame is answered; what is missing is named frame by frame."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.audit_account import Account
from frameloom.audit_marks import Kind, OffsetRange
from frameloom.audit_parts import PartKeys, PartsBook, ranges
from frameloom.audit_report import Report
from pipeline.item import Coordinates
from schemas.dead_letter import FrameMark
from schemas.partial import ResultKeys
from schemas.result import Source, Status

TOPIC = "frames"


class Log:
    """Answers to the records 0, 1, 2 ... of one stream."""

    def __init__(self, records: int = 1) -> None:
        self.records = records
        self.account = Account(TOPIC, {0: OffsetRange(0, records)})

    def frames(
        self, *frames: int, of: int | None = None, offset: int = 0, status: Status = Status.OK
    ) -> Log:
        """Results of these frames; with `of`, frame `of - 1` says that it is the last."""
        for frame in frames:
            frames_said = of if of is not None and frame == of - 1 else None
            source = Source(TOPIC, 0, offset, frame, frames_said)
            self.account.result(ResultKeys(stream_id="cam", status=status, source=source), 0)
        return self

    def letter(
        self, frame: int | None = None, frames: int | None = None, *, offset: int = 0
    ) -> Log:
        self.account.dead_letter(Coordinates(TOPIC, 0, offset), FrameMark(frame, frames))
        return self

    def report(self) -> Report:
        for offset in range(self.records):
            self.account.record(0, offset, "cam")
        return self.account.close()


def test_all_frames_answered_is_one_record_answered() -> None:
    report = Log().frames(0, 1, 2, of=3).report()
    assert (report.total.received, report.total.ok) == (1, 1)
    assert (report.segments, report.frames, report.extra_answers) == (1, 3, 0)
    assert report.clean(allow_duplicates=False)


def test_a_lost_frame_is_named() -> None:
    report = Log().frames(0, 2, 5, 6, of=7).report()
    assert (report.total.ok, report.total.lost) == (0, 1)
    assert report.lost.first[0].source == "frames/0/0"
    assert report.lost.first[0].detail == "no answer to frames 1, 3-4 of 7"


def test_a_segment_whose_end_is_unknown_is_lost() -> None:
    report = Log().frames(0, 1, 2).report()
    assert report.total.lost == 1
    assert "frames 0-2 are answered, and no answer says that they are all" in (
        report.lost.first[0].detail
    )


def test_a_redelivery_is_a_duplicate_of_its_frames_and_keeps_the_order() -> None:
    report = Log().frames(0, 1).frames(0, 1, 2, of=3).report()
    assert (report.total.ok, report.total.duplicate, report.extra_answers) == (1, 1, 2)
    assert report.duplicate.first[0].detail == "frames 0-1 were answered again"
    assert report.total.out_of_order == 0
    assert report.clean(allow_duplicates=True)


def test_a_redelivery_after_all_of_it_is_a_duplicate_too() -> None:
    report = Log().frames(0, 1, of=2).frames(0, 1, of=2).report()
    assert (report.total.ok, report.total.duplicate, report.extra_answers) == (1, 1, 2)
    assert report.duplicate.first[0].detail == "frames 0, 1 were answered again"


def test_frames_of_one_record_stand_in_order() -> None:
    report = Log().frames(1, 0, 2, of=3).report()
    assert report.total.out_of_order == 1
    assert "frame 1" in report.out_of_order.first[0].detail


def test_records_around_a_segment_stand_in_order() -> None:
    log = Log(3).frames(0, of=1).frames(0, 1, of=2, offset=1).frames(0, of=1, offset=2)
    assert log.report().clean(allow_duplicates=False)


def test_a_broken_segment_is_dead_lettered_and_whole() -> None:
    report = Log().frames(0, 1).letter(None, 2).report()
    assert (report.total.dead_lettered, report.frames) == (1, 2)
    assert report.clean(allow_duplicates=False)
    assert Log().letter(None, 0).report().total.dead_lettered == 1


def test_a_frame_lost_before_the_damage_is_lost() -> None:
    report = Log().frames(0, 2).letter(None, 3).report()
    assert report.lost.first[0].detail == "no answer to frames 1 of 3"


def test_a_dead_letter_of_one_frame_answers_it() -> None:
    report = Log().frames(0, 2, of=3).letter(1).report()
    assert (report.total.dead_lettered, report.total.lost) == (1, 0)
    assert Log().frames(0, 1).letter(2, 3).report().total.lost == 0


def test_a_dead_letter_of_the_whole_record_answers_what_has_no_answer() -> None:
    report = Log().frames(0, 1).letter().report()
    assert (report.total.lost, report.total.received) == (0, 1)
    assert report.clean(allow_duplicates=True)


def test_answers_in_part_to_a_record_that_is_not_there_are_unknown() -> None:
    account = Account(TOPIC, {0: OffsetRange(0, 5)})
    source = Source(TOPIC, 0, 3, 1, None)
    account.result(ResultKeys(stream_id="cam", status=Status.OK, source=source), 0)
    report = account.close()
    assert report.unknown.first[0].source == "frames/0/3"


def test_the_book_is_bounded_and_says_what_it_could_not_check() -> None:
    book = PartsBook(max_open=1)
    assert book.add(0, 0, PartKeys(Kind.OK, 0, None)) is True
    assert book.add(0, 1, PartKeys(Kind.OK, 0, None)) is None
    assert book.add(0, 0, PartKeys(Kind.OK, 1, 2)) is True
    assert book.whole(0, 0) is not None
    assert (len(book), book.unchecked) == (0, 1)


@pytest.mark.parametrize(("bits", "text"), [(0, ""), (1, "0"), (0b1011, "0-1, 3"), (0b111, "0-2")])
def test_frames_as_text(bits: int, text: str) -> None:
    assert ranges(bits) == text


@given(
    total=st.integers(1, 8),
    answers=st.lists(st.integers(0, 7), max_size=24),
)
def test_it_agrees_with_a_naive_account(total: int, answers: list[int]) -> None:
    answers = [frame for frame in answers if frame < total]
    log = Log()
    for frame in answers:
        # A picture looks like a segment of one frame, and is one.
        log.frames(frame, of=total)
    report = log.report()
    whole = set(answers) == set(range(total))
    assert report.total.ok == whole
    assert report.total.lost == (not whole)
    assert report.total.duplicate == (whole and len(answers) > total)
    if whole and total > 1:
        assert report.extra_answers == len(answers) - total
        assert report.frames == total
