"""Results, sent records and answers of a demo run, with defaults for what a test is not about."""

from __future__ import annotations

from frameloom.demo_report import Calibration
from frameloom.demo_tally import DEAD_LETTER, Answer, Sent
from pipeline.item import Coordinates
from schemas.result import (
    BatchInfo,
    ClosedBy,
    Detection,
    ModelInfo,
    ResultMessage,
    Source,
    Status,
    Times,
)

MS = 1000
"""Microseconds of a millisecond."""


def at(offset: int, partition: int = 0) -> Coordinates:
    return Coordinates("frames", partition, offset)


def sent(offset: int, stream: str = "cam", *, shot: int | None = 0, partition: int = 0) -> Sent:
    """A record captured at 100 ms × its offset."""
    return Sent(at(offset, partition), stream, shot, offset * 100 * MS)


def by_coordinates(*records: Sent) -> dict[Coordinates, Sent]:
    return {record.coordinates: record for record in records}


def a_result(
    offset: int,
    stream: str = "cam",
    *,
    status: Status = Status.OK,
    partition: int = 0,
    detections: tuple[Detection, ...] = (),
    batch: BatchInfo | None = None,
    batch_at_ms: int = 0,
) -> ResultMessage:
    """A result of 640 × 480. With a batch: received 5 ms before the batch closed, started 2 ms
    and finished 30 ms after it."""
    closed_us = batch_at_ms * MS
    return ResultMessage(
        stream_id=stream,
        seq=offset,
        captured_at_us=offset * 100 * MS,
        status=status,
        width=640,
        height=480,
        detections=list(detections),
        model=ModelInfo("demo", "0" * 12, "detect", 0.25, 0.7),
        batch=batch,
        times=Times(
            received_us=closed_us - 5 * MS,
            batched_us=closed_us,
            started_us=closed_us + 2 * MS,
            finished_us=closed_us + 30 * MS,
            decode_ms=4.0,
            infer_ms=20.0,
            post_ms=1.0,
        ),
        source=Source("frames", partition, offset),
    )


def in_batch(
    size: int, index: int, *, bucket: str = "480p", by: ClosedBy = ClosedBy.FULL
) -> BatchInfo:
    return BatchInfo(bucket, "normal", size, index, by)


def answered(result: ResultMessage, *, after_ms: int = 50) -> Answer:
    """The result, sent `after_ms` after its capture."""
    source = Coordinates(result.source.topic, result.source.partition, result.source.offset)
    return Answer(
        source,
        result.stream_id,
        result.status.value,
        result.captured_at_us + after_ms * MS,
        result=result,
    )


def given_up(offset: int, stream: str = "broken", reason: str = "bad_envelope") -> Answer:
    return Answer(at(offset), stream, DEAD_LETTER, offset * 100 * MS, reason=reason)


def a_calibration() -> Calibration:
    return Calibration(
        scale=0.5,
        frames_per_s=10.0,
        predicted_busy=0.6,
        measured_busy=0.55,
        others_busy=0.0,
        cost_ms={"cam": 20.0},
        decoder="opencv",
        device="cpu",
        model="demo (000000000000)",
    )
