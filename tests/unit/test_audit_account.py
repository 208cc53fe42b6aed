"""The account agrees with a naive one that keeps everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.audit_account import Account
from frameloom.audit_marks import MAX_EXTRA, PAGE_OFFSETS, Kind, OffsetMarks, OffsetRange
from frameloom.audit_report import OTHER, Counts, Finding, Report
from pipeline.item import Coordinates
from schemas.partial import ResultKeys
from schemas.result import Source, Status

TOPIC = "frames"
Place = tuple[int, int]
"""Partition and offset of a record."""


@dataclass(frozen=True)
class An:
    """An answer: a dead letter where `status` is None. `out` is the output partition."""

    offset: int
    status: Status | None = Status.OK
    partition: int = 0
    out: int = 0
    topic: str = TOPIC

    @property
    def place(self) -> Place:
        return self.partition, self.offset


@dataclass(frozen=True)
class Scene:
    """Records with their streams, answers in the order of their logs, ranges."""

    records: dict[Place, str]
    answers: Sequence[An]
    ranges: dict[int, OffsetRange]

    def stream(self, place: Place) -> str:
        return self.records.get(place, "ghost")

    def report(self, *, ordered: bool = True, **limits: int) -> Report:
        account = Account(TOPIC, self.ranges, ordered=ordered, **limits)
        for answer in self.answers:
            if answer.status is None:
                account.dead_letter(Coordinates(answer.topic, *answer.place))
                continue
            account.result(
                ResultKeys(
                    stream_id=self.stream(answer.place),
                    status=answer.status,
                    source=Source(answer.topic, *answer.place),
                ),
                answer.out,
            )
        for (partition, offset), stream in sorted(self.records.items()):
            account.record(partition, offset, stream)
        return account.close()


def a_report(*answers: An, streams: str = "aaaaaaaaaa", **options: int) -> Report:
    """Of partition 0 with records at offsets 0, 1, ... of the streams named by the letters."""
    records = {(0, offset): stream for offset, stream in enumerate(streams)}
    return Scene(records, answers, {0: OffsetRange(0, len(streams))}).report(**options)


def answers(*offsets: int) -> list[An]:
    return [An(offset) for offset in offsets]


# -- the model -----------------------------------------------------------------------------------

RANK: list[Status | None] = [Status.OK, Status.EXPIRED, Status.SKIPPED, None]


def naive_streams(scene: Scene) -> dict[str, Counts]:
    rows: dict[str, Counts] = {}
    for (partition, offset), stream in scene.records.items():
        if partition not in scene.ranges or offset not in scene.ranges[partition]:
            continue
        row = rows.setdefault(stream, Counts())
        row.received += 1
        mine = [a for a in scene.answers if a.topic == TOPIC and a.place == (partition, offset)]
        if not mine:
            row.lost += 1
            continue
        row.duplicate += len(mine) > 1
        status = min((a.status for a in mine), key=RANK.index)
        name = "dead_lettered" if status is None else status.value
        setattr(row, name, getattr(row, name) + 1)
    for stream, count in naive_out_of_order(scene).items():
        rows.setdefault(stream, Counts()).out_of_order = count
    return rows


def naive_out_of_order(scene: Scene) -> Counter[str]:
    """Of every first answer, whether an earlier first one of its stream came from further on."""
    firsts: list[An] = []
    wrong: Counter[str] = Counter()
    seen: set[Place] = set()
    for answer in scene.answers:
        in_range = answer.offset in scene.ranges.get(answer.partition, range(0))
        if answer.topic != TOPIC or not in_range or answer.place in seen:
            continue
        seen.add(answer.place)
        stream = scene.stream(answer.place)
        if answer.status is None or stream == f"{TOPIC}-{answer.partition}":
            continue
        wrong[stream] += any(
            scene.stream(first.place) == stream
            and (first.out, first.partition) == (answer.out, answer.partition)
            and first.offset > answer.offset
            for first in firsts
        )
        firsts.append(answer)
    return Counter({stream: count for stream, count in wrong.items() if count})


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    places = st.tuples(st.integers(0, 2), st.integers(0, 12))
    streams = st.sampled_from(["a", "b", f"{TOPIC}-0"])
    records = draw(st.dictionaries(places, streams, max_size=24))
    answer = st.builds(
        An,
        offset=st.integers(0, 12),
        status=st.sampled_from(RANK),
        partition=st.integers(0, 3),
        out=st.integers(0, 1),
        topic=st.sampled_from([TOPIC, TOPIC, TOPIC, "others"]),
    )
    begins = [draw(st.integers(0, 4)) for _ in range(3)]
    ranges = {p: OffsetRange(begin, draw(st.integers(begin, 13))) for p, begin in enumerate(begins)}
    return Scene(records, draw(st.lists(answer, max_size=40)), ranges)


@given(scenes())
def test_agrees_with_the_naive_account(scene: Scene) -> None:
    report = scene.report(max_listed=1_000)

    expected = naive_streams(scene)
    assert report.streams == expected
    covered = {p for p in scene.records if p[0] in scene.ranges and p[1] in scene.ranges[p[0]]}
    ours = [a for a in scene.answers if a.topic == TOPIC]
    within = [a for a in ours if a.offset in scene.ranges.get(a.partition, range(0))]
    strange = [a for a in ours if a.partition not in scene.ranges]
    assert report.foreign == len(scene.answers) - len(ours)
    assert report.outside == len(ours) - len(within) - len(strange)
    assert report.extra_answers == len(within) - len({a.place for a in within})
    unknown = {a.place for a in within} - covered
    assert report.unknown.count == len(unknown) + len(strange)
    lost = covered - {a.place for a in within}
    assert {f.source for f in report.lost.first} == {f"{TOPIC}/{p}/{o}" for p, o in lost}


@given(scenes())
def test_received_is_the_sum_of_the_fates(scene: Scene) -> None:
    report = scene.report()

    for row in (*report.streams.values(), report.total):
        fates = row.ok + row.expired + row.skipped + row.dead_lettered + row.lost
        assert row.received == fates
    for name, count in asdict(report.total).items():
        assert count == sum(getattr(row, name) for row in report.streams.values())


@given(scenes(), st.integers(1, 2), st.integers(0, 3))
def test_a_small_table_keeps_the_totals(scene: Scene, max_streams: int, max_listed: int) -> None:
    whole = scene.report()
    small = scene.report(max_streams=max_streams, max_listed=max_listed)

    assert len(set(small.streams) - {OTHER}) <= max_streams
    whole_counts, small_counts = asdict(whole.total), asdict(small.total)
    whole_disorder, small_disorder = (c.pop("out_of_order") for c in (whole_counts, small_counts))
    assert small_counts == whole_counts
    assert small_disorder <= whole_disorder <= small_disorder + small.order_unchecked
    for found in (small.lost, small.duplicate, small.out_of_order, small.unknown):
        assert len(found.first) == min(found.count, max_listed)


# -- order ---------------------------------------------------------------------------------------


def test_a_redelivery_goes_back_without_breaking_the_order() -> None:
    report = a_report(*answers(0, 1, 2, 3, 1, 2, 3, 4), streams="aaaaa")

    assert (report.total.out_of_order, report.total.duplicate, report.extra_answers) == (0, 3, 3)
    assert not report.clean(allow_duplicates=False)
    assert report.clean(allow_duplicates=True)


def test_two_workers_that_overlap_do_not_break_the_order() -> None:
    """A worker that lost the partition still sends while its successor begins anew."""
    report = a_report(*answers(0, 1, 2, 1, 3, 2, 4, 3, 4, 5), streams="aaaaaa")

    assert report.total.out_of_order == 0


def test_an_answer_that_overtakes_is_named_by_those_it_overtook() -> None:
    report = a_report(*answers(0, 3, 1, 2), streams="aaaa")

    assert report.out_of_order.first == [
        Finding("frames/0/1", "a", "left after offset 3"),
        Finding("frames/0/2", "a", "left after offset 3"),
    ]


def test_streams_are_ordered_each_by_itself() -> None:
    assert a_report(*answers(1, 0, 3, 2), streams="abab").total.out_of_order == 0


def test_output_partitions_are_ordered_each_by_itself() -> None:
    assert a_report(An(1, out=1), An(0, out=0), streams="aa").total.out_of_order == 0


def test_dead_letters_have_no_order() -> None:
    assert a_report(An(1), An(0, None), streams="aa").clean(allow_duplicates=False)


def test_streams_made_up_from_the_partition_have_no_order() -> None:
    scene = Scene({(0, 0): "frames-0", (0, 1): "frames-0"}, answers(1, 0), {0: OffsetRange(0, 2)})
    assert scene.report().clean(allow_duplicates=False)


def test_order_that_was_not_promised_is_not_checked() -> None:
    assert a_report(*answers(1, 0), streams="aa", ordered=False).clean(allow_duplicates=False)


# -- fates ---------------------------------------------------------------------------------------


def test_what_was_never_answered_is_lost_and_named() -> None:
    report = a_report(An(0), An(2, None), streams="abc")

    assert report.lost.first == [Finding("frames/0/1", "b")]
    assert not report.clean(allow_duplicates=True)


def test_a_result_beside_a_dead_letter_is_a_duplicate_that_counts_as_the_result() -> None:
    for both in ([An(0, None), An(0)], [An(0), An(0, None)]):
        report = a_report(*both, streams="a")
        assert report.total == Counts(received=1, ok=1, duplicate=1)
        assert report.duplicate.first == [Finding("frames/0/0", "a", "2 answers, ok counts")]


def test_an_answer_where_the_input_has_a_gap_is_unknown() -> None:
    scene = Scene({(0, 0): "a", (0, 2): "a"}, answers(0, 1, 2), {0: OffsetRange(0, 3)})

    assert scene.report().unknown.first == [Finding("frames/0/1", "", "answered ok")]
    assert scene.report().clean(allow_duplicates=False)


def test_an_unreadable_answer_is_named() -> None:
    account = Account(TOPIC, {0: OffsetRange(0, 1)})
    account.unreadable("detections/0/7", "not a result")
    report = account.close()

    assert report.unreadable.first == [Finding("detections/0/7", "", "not a result")]


def test_answers_after_records_and_entries_after_the_end_are_refused() -> None:
    account = Account(TOPIC, {0: OffsetRange(0, 2)})
    account.record(0, 0, "a")
    with pytest.raises(ValueError, match="before the records"):
        account.dead_letter(Coordinates(TOPIC, 0, 0))
    account.close()
    with pytest.raises(ValueError, match="closed"):
        account.record(0, 1, "a")
    with pytest.raises(ValueError, match="closed"):
        account.close()


# -- marks ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3 * PAGE_OFFSETS), st.sampled_from(list(Kind)[1:]))))
def test_marks_remember_the_highest_kind_and_the_number(entries: list[tuple[int, Kind]]) -> None:
    marks = OffsetMarks()
    firsts = [marks.add(offset, kind) for offset, kind in entries]

    offsets = [offset for offset, _ in entries]
    assert firsts == [offset not in offsets[:index] for index, offset in enumerate(offsets)]
    left = list(marks.left())
    assert [mark.offset for mark in left] == sorted(set(offsets))
    for mark in left:
        assert mark.kind == max(kind for offset, kind in entries if offset == mark.offset)
        assert mark.extra == min(offsets.count(mark.offset) - 1, MAX_EXTRA)
        assert marks.take(mark.offset) == mark
        assert marks.take(mark.offset).kind is Kind.NONE
    assert list(marks.left()) == []


def test_more_answers_than_a_mark_counts_stay_at_the_most() -> None:
    marks = OffsetMarks()
    for _ in range(MAX_EXTRA + 10):
        marks.add(5, Kind.OK)
    assert marks.take(5).extra == MAX_EXTRA


def test_a_sparse_log_takes_few_pages() -> None:
    marks = OffsetMarks()
    for offset in (0, 10**9, 10**12, 10**12 + 1):
        marks.add(offset, Kind.OK)
    assert marks.pages == 3
