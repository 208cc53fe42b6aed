"""The account: answers first, then the records they answer. Pure: it reads no topic.

Answers are entered first because they say all that must be remembered of a record in one byte:
how it was answered. The records are read afterwards, and each finds its answer by its offset;
so neither records nor answers are kept, and a record's stream is known when its fate is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from frameloom.audit_marks import KINDS, MAX_EXTRA, Kind, OffsetMarks, OffsetRange
from frameloom.audit_parts import PartKeys, PartsBook, Whole
from frameloom.audit_report import OTHER, Counts, Finding, FindingList, Report, total
from pipeline.item import Coordinates
from schemas.dead_letter import FrameMark
from schemas.partial import ResultKeys

WHOLE_RECORD = FrameMark()
"""The mark of a dead letter that answers all of its record."""
MAX_DETAIL = 200
"""Longest list of frames in a finding, about."""


class _Phase(Enum):
    ANSWERS = "answers"
    RECORDS = "records"
    CLOSED = "closed"


class Account:
    """The account of one input topic.

    Memory: a byte per offset of the range (`OffsetMarks`), a row and an order mark per stream up
    to `max_streams`, `max_listed` findings of each kind, and the frames seen of segments that are
    not whole (`PartsBook`); nothing grows with the answers.

    A segment of video counts as one record. It is answered when all of its frames are.

    Order: the first answers of a stream leave an output partition in the order of their source
    offsets and frames, per source partition. An answer to an offset that was answered before is a
    duplicate and says nothing about order: that is how a redelivery goes back without breaking it.
    A first answer below the highest before it is out of order (RFC 4737 counts packets so). Streams
    made up for records without a key (`topic-partition`) have no order.

    Args:
        topic: the input topic.
        ranges: its partitions and their offsets under audit.
        ordered: False where the worker promises no order (`delivery.order: none`).
        max_streams: rows; streams that come later share the row `(other)`, and their order is
            not checked.
        max_listed: findings of each kind that are kept.
    """

    def __init__(
        self,
        topic: str,
        ranges: Mapping[int, OffsetRange],
        *,
        ordered: bool = True,
        max_streams: int = 100_000,
        max_listed: int = 20,
    ) -> None:
        self._topic = topic
        self._ranges = dict(ranges)
        self._ordered = ordered
        self._max_streams = max_streams
        self._marks = {partition: OffsetMarks() for partition in ranges}
        self._without_order = {f"{topic}-{partition}" for partition in ranges}
        self._rows: dict[str, Counts] = {}
        self._parts = PartsBook()
        self._again: dict[tuple[int, int], str] = {}
        self._max_listed = max_listed
        self._segments = self._frames = 0
        self._highest: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
        self._highest_count = 0
        self._lost = FindingList(max_listed)
        self._duplicate = FindingList(max_listed)
        self._out_of_order = FindingList(max_listed)
        self._unknown = FindingList(max_listed)
        self._unreadable = FindingList(max_listed)
        self._extra = self._outside = self._foreign = self._order_unchecked = 0
        self._phase = _Phase.ANSWERS

    def result(self, keys: ResultKeys, partition: int) -> None:
        """Enter a result. Those of one output `partition` come in the order of its log.

        Raises:
            ValueError: records were entered already.
        """
        source, kind = keys.source, KINDS[keys.status]
        at = Coordinates(source.topic, source.partition, source.offset)
        if (source.frame, source.frames) == (0, 1):
            first = self._answer(at, kind)
        else:
            first = self._answer_part(at, PartKeys(kind, source.frame, source.frames))
        if first and self._ordered and keys.stream_id not in self._without_order:
            self._check_order(keys, partition)

    def dead_letter(self, source: Coordinates, mark: FrameMark = WHOLE_RECORD) -> None:
        """Enter a dead letter by its `fl-source`, and by the frame of a segment that it answers.
        Dead letters have no order.

        Raises:
            ValueError: records were entered already.
        """
        if mark == WHOLE_RECORD:
            # It answers whatever of the record has no answer yet.
            if self._parts.holds(source.partition, source.offset):
                self._settle(source, self._parts.close(source.partition, source.offset))
            self._answer(source, Kind.DEAD_LETTERED)
        else:
            self._answer_part(source, PartKeys(Kind.DEAD_LETTERED, mark.frame, mark.frames))

    def unreadable(self, where: str, why: str) -> None:
        """Enter a record of an answer topic that is no answer."""
        self._unreadable.add(Finding(where, "", why))

    def record(self, partition: int, offset: int, stream: str) -> None:
        """Enter a record of the input, each once, after all answers. One outside the range is
        ignored.

        Raises:
            ValueError: the account is closed.
        """
        if self._phase is not _Phase.RECORDS:
            self._enter(_Phase.RECORDS)
        if partition not in self._ranges or offset not in self._ranges[partition]:
            return
        row = self._row(stream)
        row.received += 1
        mark = self._marks[partition].take(offset)
        _count(row, mark.kind)
        if mark.kind is Kind.NONE:
            held = self._parts.holds(partition, offset)
            detail = self._parts.lacking(partition, offset) if held else ""
            self._lost.add(Finding(self._name(partition, offset), stream, detail))
        elif mark.extra:
            row.duplicate += 1
            again = self._again.pop((partition, offset), None)
            detail = f"{mark.extra + 1} answers, {mark.kind.name.lower()} counts"
            if again is not None:
                detail = f"frames {again} were answered again"
            self._duplicate.add(Finding(self._name(partition, offset), stream, detail))

    def close(self, notes: list[str] | None = None) -> Report:
        """The report. Nothing can be entered any more."""
        self._enter(_Phase.CLOSED)
        for partition, marks in sorted(self._marks.items()):
            for mark in marks.left():
                name = self._name(partition, mark.offset)
                self._unknown.add(Finding(name, "", f"answered {mark.kind.name.lower()}"))
        for partition, offset in self._parts.left():
            self._unknown.add(Finding(self._name(partition, offset), "", "answered in part"))
        return Report(
            topic=self._topic,
            ranges=self._ranges,
            total=total(self._rows.values()),
            streams=self._rows,
            lost=self._lost,
            duplicate=self._duplicate,
            out_of_order=self._out_of_order,
            unknown=self._unknown,
            extra_answers=self._extra,
            outside=self._outside,
            foreign=self._foreign,
            unreadable=self._unreadable,
            order_unchecked=self._order_unchecked,
            segments=self._segments,
            frames=self._frames,
            frames_unchecked=self._parts.unchecked,
            notes=notes or [],
        )

    def _answer(self, at: Coordinates, kind: Kind) -> bool:
        """Mark an answer; True when it is the first of an offset under audit."""
        if not self._is_under_audit(at):
            return False
        first = self._marks[at.partition].add(at.offset, kind)
        self._extra += not first
        return first

    def _answer_part(self, at: Coordinates, keys: PartKeys) -> bool:
        """Enter a frame's answer; True when it is the frame's first, under audit."""
        if not self._is_under_audit(at):
            return False
        if self._marks[at.partition].has(at.offset):
            # Every frame was answered before.
            self._note_again(at, "" if keys.frame is None else str(keys.frame))
            return self._answer(at, keys.kind)
        first = self._parts.add(at.partition, at.offset, keys)
        if first is None:
            return self._answer(at, keys.kind)
        whole = self._parts.whole(at.partition, at.offset)
        if whole is not None:
            self._settle(at, whole)
        return first

    def _settle(self, at: Coordinates, whole: Whole) -> None:
        """All of a segment is answered: its mark says so."""
        self._segments += 1
        self._frames += whole.frames
        marks = self._marks[at.partition]
        for _ in range(1 + min(whole.extra, MAX_EXTRA)):
            marks.add(at.offset, whole.kind)
        self._extra += whole.extra
        if whole.extra:
            self._note_again(at, whole.again)

    def _note_again(self, at: Coordinates, frames: str) -> None:
        place = (at.partition, at.offset)
        before = self._again.get(place)
        if before is None and len(self._again) < self._max_listed:
            self._again[place] = frames
        elif before is not None and len(before) < MAX_DETAIL:
            self._again[place] = f"{before}, {frames}" if before else frames

    def _is_under_audit(self, at: Coordinates) -> bool:
        topic, partition, offset = at.topic, at.partition, at.offset
        if self._phase is not _Phase.ANSWERS:
            raise ValueError("answers are entered before the records")
        if topic != self._topic:
            self._foreign += 1
            return False
        span = self._ranges.get(partition)
        if span is None:
            name = self._name(partition, offset)
            self._unknown.add(Finding(name, "", "the input has no such partition"))
            return False
        if offset not in span:
            self._outside += 1
            return False
        return True

    def _check_order(self, keys: ResultKeys, partition: int) -> None:
        source, stream = keys.source, keys.stream_id
        place = (source.offset, source.frame)
        highest = self._highest.setdefault((partition, source.partition), {})
        before = highest.get(stream)
        if before is None:
            if self._highest_count >= self._max_streams:
                self._order_unchecked += 1
                return
            self._highest_count += 1
            highest[stream] = place
        elif place > before:
            highest[stream] = place
        else:
            self._row(stream).out_of_order += 1
            name = self._name(source.partition, source.offset)
            after = f"left after offset {before[0]}" + (f", frame {before[1]}" if before[1] else "")
            self._out_of_order.add(Finding(name, stream, after))

    def _row(self, stream: str) -> Counts:
        row = self._rows.get(stream)
        if row is None:
            if len(self._rows) >= self._max_streams:
                stream = OTHER
            row = self._rows.setdefault(stream, Counts())
        return row

    def _enter(self, phase: _Phase) -> None:
        if self._phase is _Phase.CLOSED:
            raise ValueError("the account is closed")
        self._phase = phase

    def _name(self, partition: int, offset: int) -> str:
        return f"{self._topic}/{partition}/{offset}"


def _count(row: Counts, kind: Kind) -> None:
    if kind is Kind.OK:
        row.ok += 1
    elif kind is Kind.DEAD_LETTERED:
        row.dead_lettered += 1
    elif kind is Kind.EXPIRED:
        row.expired += 1
    elif kind is Kind.SKIPPED:
        row.skipped += 1
    else:
        row.lost += 1
