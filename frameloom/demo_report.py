"""The demo's report: everything it says at the end, computed from what was sent and answered.

Pure: no clock, no Kafka, no screen. `report.json` is this structure as it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from bench.scene_match import Match, Truth, match
from frameloom.demo_tally import DEAD_LETTER, Answer, Conservation, Sent, first_answers, reconcile
from pipeline.item import Coordinates
from schemas.result import ResultMessage, Status, Times

MIN_ACCURACY = 0.85
"""Least precision and least recall of a demo that passes."""


class Accuracy(msgspec.Struct, frozen=True):
    """Detections against the truth of the scenes, shares in 0..1."""

    precision: float
    recall: float
    true_positives: int
    false_positives: int
    missed: int
    ignored: int
    """Objects too hidden to count either way."""


class StreamRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stream. Times in milliseconds; None where there is nothing to measure.

    `interval_ms` is the median time between captures; `e2e_*` is from capture until the worker
    sent the answer.
    """

    stream: str
    received: int
    ok: int
    expired: int
    skipped: int
    dead_lettered: int
    interval_ms: float | None
    e2e_p50_ms: float | None
    e2e_p99_ms: float | None
    accuracy: Accuracy | None


class BucketRow(msgspec.Struct, frozen=True):
    """One bucket's batches. `fill` is frames / (batches × max_batch), 0..1."""

    bucket: str
    max_batch: int
    batches: int
    frames: int
    fill: float


class StageRow(msgspec.Struct, frozen=True):
    """One stage, milliseconds: `wait` per frame, the others per batch."""

    stage: str
    mean_ms: float
    p50_ms: float
    p99_ms: float


class Balance(msgspec.Struct, frozen=True):
    """See `demo_tally.Conservation`. `lost` as topic/partition/offset."""

    received: int
    answered: int
    lost: list[str]
    duplicates: int
    unknown: int
    out_of_order: int


class Calibration(msgspec.Struct, frozen=True):
    """What the run was sized by.

    Attributes:
        scale: of all nominal rates, 0..1.
        frames_per_s: of all streams together after scaling.
        predicted_busy: share of the machine that decoding and inference take, 0..1.
        measured_busy: share that the worker's process took, 0..1; None before the run.
        others_busy: share that other programs took before the run, 0..1.
        cost_ms: stream → what one frame takes of the whole machine.
        decoder, device, model: what the calibration used; the model with its version.
    """

    scale: float
    frames_per_s: float
    predicted_busy: float
    measured_busy: float | None
    others_busy: float
    cost_ms: dict[str, float]
    decoder: str
    device: str
    model: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report. `failures` is empty when the demo passed."""

    seconds: float
    calibration: Calibration
    balance: Balance
    streams: list[StreamRow]
    batch_sizes: dict[int, int]
    """Batch size → number of batches."""
    closed_by: dict[str, int]
    """Reason → number of batches."""
    buckets: list[BucketRow]
    stages: list[StageRow]
    dead_letters: dict[str, int]
    """Reason code → records."""
    accuracy: Accuracy | None
    """None with a model whose labels are not the scenes' classes."""
    failures: list[str]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is made from.

    Attributes:
        seconds: how long frames were produced.
        streams: ids in the order wanted, broken records' key included.
        calibration: with the measured share filled in.
        sent: acknowledged records by coordinates.
        answers: in the order of arrival.
        truths: stream → truth of each picture of its loop; empty where the model's labels are
            not the scenes' classes.
        max_batch: bucket → its largest batch.
        trouble: what else went wrong, one line each.
    """

    seconds: float
    streams: Sequence[str]
    calibration: Calibration
    sent: Mapping[Coordinates, Sent]
    answers: Sequence[Answer]
    truths: Mapping[str, Sequence[Sequence[Truth]]]
    max_batch: Mapping[str, int]
    trouble: Sequence[str] = ()


def build_report(evidence: Evidence) -> Report:
    """Compute the report. Of an answer that came twice, the first one counts."""
    first = first_answers(evidence.answers)
    balance = reconcile(evidence.sent, evidence.answers)
    matches = _matches(evidence, first)
    batches = _batches(first.values())
    sizes = Counter(batch.size for batch in batches)
    closed_by = Counter(batch.closed_by for batch in batches)
    accuracy = _accuracy(matches.values()) if evidence.truths else None
    ok_frames = sum(answer.status == Status.OK for answer in first.values())
    return Report(
        seconds=evidence.seconds,
        calibration=evidence.calibration,
        balance=_balance(balance),
        streams=_stream_rows(evidence, first, matches),
        batch_sizes=dict(sorted(sizes.items())),
        closed_by=dict(closed_by.most_common()),
        buckets=_bucket_rows(batches, evidence.max_batch),
        stages=_stage_rows(_ok_results(first.values()), batches.values()),
        dead_letters=dict(
            Counter(a.reason for a in first.values() if a.status == DEAD_LETTER).most_common()
        ),
        accuracy=accuracy,
        failures=[*evidence.trouble, *_failures(balance, accuracy, ok_frames)],
    )


def _failures(balance: Conservation, accuracy: Accuracy | None, ok_frames: int) -> list[str]:
    found: list[str] = []
    if balance.lost:
        found.append(f"{len(balance.lost)} of {balance.received} records were not answered")
    if balance.unknown:
        found.append(f"{balance.unknown} answers are to records that nobody sent")
    if balance.out_of_order:
        found.append(f"{balance.out_of_order} answers overtook an earlier frame of their stream")
    if ok_frames == 0:
        found.append("not a single frame was answered ok")
    elif accuracy is not None:
        for name, value in (("precision", accuracy.precision), ("recall", accuracy.recall)):
            if value < MIN_ACCURACY:
                found.append(f"{name} {value:.3f} is below {MIN_ACCURACY}")
    return found


def _balance(balance: Conservation) -> Balance:
    return Balance(
        received=balance.received,
        answered=balance.answered,
        lost=[f"{lost.topic}/{lost.partition}/{lost.offset}" for lost in balance.lost],
        duplicates=balance.duplicates,
        unknown=balance.unknown,
        out_of_order=balance.out_of_order,
    )


def _matches(evidence: Evidence, first: Mapping[Coordinates, Answer]) -> dict[Coordinates, Match]:
    """Comparison with the truth, of every frame answered ok whose truth is known."""
    matches: dict[Coordinates, Match] = {}
    for coordinates, answer in first.items():
        sent = evidence.sent.get(coordinates)
        if sent is None or sent.shot is None or answer.result is None:
            continue
        if answer.status != Status.OK or sent.stream not in evidence.truths:
            continue
        truths = evidence.truths[sent.stream][sent.shot]
        found = [(d.box, d.score, d.class_id) for d in answer.result.detections]
        matches[coordinates] = match(truths, found)
    return matches


def _accuracy(matches: Iterable[Match]) -> Accuracy | None:
    total, frames = Match(), 0
    for one in matches:
        total, frames = total + one, frames + 1
    if frames == 0:
        return None
    return Accuracy(
        precision=total.precision,
        recall=total.recall,
        true_positives=total.tp,
        false_positives=total.fp,
        missed=total.fn,
        ignored=total.ignored,
    )


def _stream_rows(
    evidence: Evidence,
    first: Mapping[Coordinates, Answer],
    matches: Mapping[Coordinates, Match],
) -> list[StreamRow]:
    by_stream: dict[str, list[Sent]] = {stream: [] for stream in evidence.streams}
    for sent in evidence.sent.values():
        by_stream[sent.stream].append(sent)
    rows: list[StreamRow] = []
    for stream, records in by_stream.items():
        answered = [
            (sent, first[sent.coordinates]) for sent in records if sent.coordinates in first
        ]
        states = Counter(answer.status for _, answer in answered)
        e2e = [
            (answer.answered_at_us - sent.captured_at_us) / 1000
            for sent, answer in answered
            if answer.status == Status.OK
        ]
        captured = sorted(sent.captured_at_us for sent in records if sent.shot is not None)
        rows.append(
            StreamRow(
                stream=stream,
                received=len(records),
                ok=states[Status.OK],
                expired=states[Status.EXPIRED],
                skipped=states[Status.SKIPPED],
                dead_lettered=states[DEAD_LETTER],
                interval_ms=_median_gap_ms(captured),
                e2e_p50_ms=_percentile(e2e, 50),
                e2e_p99_ms=_percentile(e2e, 99),
                accuracy=_accuracy(
                    matches[sent.coordinates] for sent in records if sent.coordinates in matches
                ),
            )
        )
    return rows


def _median_gap_ms(stamps_us: Sequence[int]) -> float | None:
    return _percentile([(after - before) / 1000 for before, after in pairwise(stamps_us)], 50)


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch as its results tell of it; equal for all of them. Told by its instants, because a
    batch with a dead letter in it has fewer results than its size says."""

    bucket: str
    size: int
    closed_by: str
    batched_us: int
    started_us: int


def _batches(answers: Iterable[Answer]) -> dict[_Batch, Times]:
    """Every batch once, with its times."""
    return {
        _Batch(
            r.batch.bucket,
            r.batch.size,
            r.batch.closed_by.value,
            r.times.batched_us,
            r.times.started_us,
        ): r.times
        for r in _ok_results(answers)
        if r.batch is not None
    }


def _ok_results(answers: Iterable[Answer]) -> list[ResultMessage]:
    return [a.result for a in answers if a.result is not None and a.status == Status.OK]


def _bucket_rows(batches: Iterable[_Batch], max_batch: Mapping[str, int]) -> list[BucketRow]:
    rows: list[BucketRow] = []
    for bucket, most in max_batch.items():
        sizes = [batch.size for batch in batches if batch.bucket == bucket]
        if sizes:
            frames = sum(sizes)
            rows.append(BucketRow(bucket, most, len(sizes), frames, frames / (len(sizes) * most)))
    return rows


def _stage_rows(results: Iterable[ResultMessage], batches: Iterable[Times]) -> list[StageRow]:
    columns = {
        "wait for batch": [(r.times.batched_us - r.times.received_us) / 1000 for r in results],
        "wait for slot": [(t.started_us - t.batched_us) / 1000 for t in batches],
        "decode": [t.decode_ms for t in batches],
        "infer": [t.infer_ms for t in batches],
        "post": [t.post_ms for t in batches],
    }
    return [
        StageRow(
            stage,
            float(np.mean(values)),
            float(np.percentile(values, 50)),
            float(np.percentile(values, 99)),
        )
        for stage, values in columns.items()
        if values
    ]
