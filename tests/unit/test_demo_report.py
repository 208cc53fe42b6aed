"""The demo's report, computed from answers written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from bench.scene_truth import Truth
from frameloom import demo_screen
from frameloom.demo_report import Evidence, Report, build_report
from frameloom.demo_tally import Answer, Sent
from schemas.result import ClosedBy, Detection, Status
from tests.builders_demo import (
    a_calibration,
    a_result,
    answered,
    by_coordinates,
    given_up,
    in_batch,
    sent,
)

CAR = Detection((10.0, 10.0, 110.0, 60.0), 0.9, 0, "car")
STRAY = Detection((300.0, 300.0, 380.0, 360.0), 0.8, 0, "car")
TRUTH = Truth((10.0, 10.0, 110.0, 60.0), 0, 1.0, 1)


def report(
    records: Sequence[Sent],
    answers: Sequence[Answer],
    *,
    streams: Sequence[str] = ("cam", "broken"),
    truths: Mapping[str, Sequence[Sequence[Truth]]] | None = None,
    trouble: Sequence[str] = (),
) -> Report:
    return build_report(
        Evidence(
            seconds=10.0,
            streams=streams,
            calibration=a_calibration(),
            sent=by_coordinates(*records),
            answers=answers,
            truths={"cam": [[TRUTH]]} if truths is None else truths,
            max_batch={"480p": 16, "4k": 8},
            trouble=trouble,
        )
    )


def found(*detections: Detection, offset: int = 0) -> Answer:
    return answered(a_result(offset, detections=detections, batch=in_batch(1, 0)))


def test_a_whole_run_passes() -> None:
    made = report([sent(0), sent(1, "broken", shot=None)], [found(CAR), given_up(1)])
    assert made.failures == []
    assert made.dead_letters == {"bad_envelope": 1}


def test_the_counts_of_a_stream() -> None:
    answers = [
        found(CAR),
        answered(a_result(1, status=Status.EXPIRED)),
        answered(a_result(2, status=Status.SKIPPED)),
        given_up(3, "cam"),
    ]
    row = report([sent(i) for i in range(5)], answers).streams[0]
    assert (row.received, row.ok, row.expired, row.skipped, row.dead_lettered) == (5, 1, 1, 1, 1)


def test_interval_and_latency_are_measured() -> None:
    answers = [answered(a_result(i, detections=(CAR,)), after_ms=50 + i) for i in range(5)]
    row = report([sent(i) for i in range(5)], answers).streams[0]
    assert row.interval_ms == pytest.approx(100.0)
    assert row.e2e_p50_ms == pytest.approx(52.0)
    assert row.e2e_p99_ms == pytest.approx(53.96)


def test_streams_come_in_the_order_asked_for_even_when_nothing_was_sent() -> None:
    made = report([sent(0, "b")], [], streams=("a", "b", "broken"), truths={})
    assert [(row.stream, row.received) for row in made.streams] == [
        ("a", 0),
        ("b", 1),
        ("broken", 0),
    ]
    assert made.streams[0].interval_ms is None
    assert made.streams[0].e2e_p50_ms is None


def test_batches_are_counted_once_though_each_frame_tells_of_them() -> None:
    answers = [answered(a_result(i, batch=in_batch(3, i), batch_at_ms=10)) for i in range(3)] + [
        answered(a_result(3, batch=in_batch(2, 0, by=ClosedBy.IDLE), batch_at_ms=60)),
        # Its neighbour became a dead letter: one result of a batch of two.
        given_up(4, "cam"),
    ]
    made = report([sent(i) for i in range(5)], answers)
    assert made.batch_sizes == {2: 1, 3: 1}
    assert made.closed_by == {"full": 1, "idle": 1}
    (row,) = made.buckets
    assert (row.bucket, row.batches, row.frames, row.fill) == ("480p", 2, 5, 5 / 32)


def test_stage_times_are_per_batch_and_waits_per_frame() -> None:
    answers = [answered(a_result(i, batch=in_batch(2, i), batch_at_ms=10)) for i in range(2)]
    stages = {row.stage: row for row in report([sent(0), sent(1)], answers).stages}
    assert stages["wait for batch"].p50_ms == pytest.approx(5.0)
    assert stages["wait for slot"].mean_ms == pytest.approx(2.0)
    assert stages["decode"].p99_ms == pytest.approx(4.0)
    assert stages["infer"].p50_ms == pytest.approx(20.0)


def test_accuracy_is_against_the_truth_of_the_very_picture() -> None:
    truths = {"cam": [[TRUTH], []]}
    answers = [found(CAR), found(STRAY, offset=1)]
    made = report([sent(0, shot=0), sent(1, shot=1)], answers, truths=truths)
    assert made.accuracy is not None
    assert made.accuracy.precision == pytest.approx(0.5)
    assert made.accuracy.recall == pytest.approx(1.0)
    assert made.failures == ["precision 0.500 is below 0.85"]


def test_a_missed_object_costs_recall() -> None:
    made = report([sent(0)], [found()])
    assert made.failures == ["recall 0.000 is below 0.85"]


def test_a_foreign_model_is_not_judged() -> None:
    made = report([sent(0)], [found(STRAY)], truths={})
    assert made.accuracy is None
    assert made.streams[0].accuracy is None
    assert made.failures == []


def test_a_duplicate_counts_once_everywhere() -> None:
    made = report([sent(0)], [found(CAR), found(CAR)])
    assert made.streams[0].ok == 1
    assert made.balance.duplicates == 1
    assert made.batch_sizes == {1: 1}


@pytest.mark.parametrize(
    ("records", "answers", "failure"),
    [
        ([sent(0), sent(1)], [found(CAR)], "1 of 2 records were not answered"),
        (
            [sent(0)],
            [found(CAR), found(CAR, offset=7)],
            "1 answers are to records that nobody sent",
        ),
        (
            [sent(0), sent(1)],
            [found(CAR, offset=1), found(CAR, offset=0)],
            "1 answers overtook an earlier frame of their stream",
        ),
        ([sent(0)], [given_up(0, "cam")], "not a single frame was answered ok"),
        ([], [], "not a single frame was answered ok"),
    ],
)
def test_what_fails_a_demo(records: list[Sent], answers: list[Answer], failure: str) -> None:
    assert report(records, answers).failures == [failure]


def test_trouble_of_the_run_fails_it_too() -> None:
    assert report([sent(0)], [found(CAR)], trouble=["the worker ended with 1"]).failures == [
        "the worker ended with 1"
    ]


def test_the_report_survives_json() -> None:
    made = report([sent(0)], [found(CAR)])
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


@pytest.mark.parametrize(("status", "said"), [(Status.OK, False), (Status.EXPIRED, True)])
def test_the_screen_says_why_frames_came_too_late(
    status: Status, said: bool, tmp_path: Path
) -> None:
    late = msgspec.structs.replace(a_result(0, batch=in_batch(1, 0)), status=status)
    made = report([sent(0)], [answered(late)])
    assert any("answered expired" in line for line in demo_screen._summary(made, tmp_path)) == said
