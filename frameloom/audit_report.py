"""What an audit found: counts per stream, and the first findings with their coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from frameloom.audit_marks import OffsetRange

OTHER = "(other)"
"""The row of streams that came when the table was full."""


@dataclass(slots=True)
class Counts:
    """Records of one stream, by distinct source coordinates.

    received = ok + expired + skipped + dead_lettered + lost, always.

    Attributes:
        received: records of the input range.
        ok, expired, skipped, dead_lettered: received and answered so.
        lost: received and not answered.
        duplicate: received and answered more than once.
        out_of_order: first results that left after one with a higher source offset.
    """

    received: int = 0
    ok: int = 0
    expired: int = 0
    skipped: int = 0
    dead_lettered: int = 0
    lost: int = 0
    duplicate: int = 0
    out_of_order: int = 0

    @property
    def faults(self) -> int:
        """Lost, duplicate and out of order together."""
        return self.lost + self.duplicate + self.out_of_order


def total(rows: Iterable[Counts]) -> Counts:
    """The sum of all rows."""
    sums = Counts()
    for row in rows:
        for each in fields(Counts):
            setattr(sums, each.name, getattr(sums, each.name) + getattr(row, each.name))
    return sums


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        source: `topic/partition/offset` of the frame's record.
        stream: its stream, empty where the record was not read.
        detail: what is wrong, where the list's name does not say it all.
    """

    source: str
    stream: str
    detail: str = ""


@dataclass(slots=True)
class FindingList:
    """The first findings of a kind, and how many there are."""

    limit: int
    count: int = 0
    first: list[Finding] = field(default_factory=list[Finding])

    def add(self, finding: Finding) -> None:
        """Count it; keep it while there is room."""
        self.count += 1
        if len(self.first) < self.limit:
            self.first.append(finding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An audit of one input topic.

    Attributes:
        topic: the input topic.
        ranges: partition → offsets that were looked at.
        total: all streams together.
        streams: by stream id; `(other)` for those beyond the table.
        lost, duplicate, out_of_order: the faults.
        unknown: answers to coordinates inside the range at which the input has no record, and to
            partitions that it does not have.
        extra_answers: answers beyond the first of their coordinates, unknown ones included.
        outside: answers to records outside the range, ignored.
        foreign: answers to records of other topics, ignored.
        unreadable: records on the answer topics that are no answers.
        segments: records with an answer per frame, of which all are answered.
        frames: distinct frames answered of those.
        frames_unchecked: answers of segments that came when too many others were not whole: such a
            record counts as answered.
        order_unchecked: results whose stream came when the table was full.
        notes: what limits the proof, one sentence each.
    """

    topic: str
    ranges: dict[int, OffsetRange]
    total: Counts
    streams: dict[str, Counts]
    lost: FindingList
    duplicate: FindingList
    out_of_order: FindingList
    unknown: FindingList
    extra_answers: int
    outside: int
    foreign: int
    unreadable: FindingList
    order_unchecked: int
    segments: int = 0
    frames: int = 0
    frames_unchecked: int = 0
    notes: list[str] = field(default_factory=list[str])

    def clean(self, *, allow_duplicates: bool) -> bool:
        """Nothing lost, nothing out of order, and (unless allowed) nothing answered twice."""
        faults = self.lost.count + self.out_of_order.count
        return faults == 0 and (allow_duplicates or self.duplicate.count == 0)
