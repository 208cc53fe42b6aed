"""The result as it travels: the one answer to one frame (DESIGN: wire format)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

RESULT_VERSION = 1


class Status(StrEnum):
    """How a frame was answered. A dead letter is the fourth way, on a topic of its own."""

    OK = "ok"
    EXPIRED = "expired"
    """Its time to live ran out before it could cost device time."""
    SKIPPED = "skipped"
    """Left out on purpose by the route's `sample_every`."""


class ClosedBy(StrEnum):
    """Why a batch was closed. Exactly one reason per batch, in metrics and in every result."""

    FULL = "full"
    WINDOW = "window"
    IDLE = "idle"
    DEADLINE = "deadline"
    DRAIN = "drain"
    REVOKE = "revoke"
    SOLO = "solo"
    """A frame under suspicion of crashing the worker, alone on the device."""


class Detection(msgspec.Struct, frozen=True):
    """One object.

    Attributes:
        box: x1, y1, x2, y2 in displayed source pixels (EXIF orientation applied),
            0 ≤ x ≤ width, 0 ≤ y ≤ height.
        score: 0 to 1.
        class_id: the model's number of the class.
        label: the model's name of the class.
    """

    box: tuple[float, float, float, float]
    score: float
    class_id: int
    label: str


class ModelInfo(msgspec.Struct, frozen=True):
    """Which model answered, and how it was asked.

    Attributes:
        name: of the weights file.
        version: the first 12 hex digits of the weights' SHA-256.
        task: `detect`.
        conf: least score of a detection, 0 to 1.
        iou: overlap above which the weaker of two boxes was dropped, 0 to 1.
        backend: what ran the weights: `torch`, `torch-fp16`, `onnx`, `openvino` or `tensorrt`, an
            exported file of half precision with `-fp16` behind it.
    """

    name: str
    version: str
    task: str
    conf: float
    iou: float
    backend: str = "torch"


class BatchInfo(msgspec.Struct, frozen=True):
    """The batch a frame was in.

    Attributes:
        bucket: name of the bucket.
        lane: name of the lane.
        size: frames in the batch, at least 1.
        index: the frame's row, 0 ≤ index < size.
        closed_by: why the batch was closed.
    """

    bucket: str
    lane: str
    size: int
    index: int
    closed_by: ClosedBy


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """When and how long. All but `received_us` are of the frame's batch, 0 without one.

    Attributes:
        received_us: the worker took the record from Kafka, Unix microseconds.
        batched_us: the batch was closed, Unix microseconds.
        started_us: a slot took the batch up, Unix microseconds.
        finished_us: the batch was done, Unix microseconds.
        decode_ms: decoding and letterboxing, milliseconds.
        infer_ms: the model, milliseconds.
        post_ms: boxes from raw predictions, milliseconds.
    """

    received_us: int
    batched_us: int
    started_us: int
    finished_us: int
    decode_ms: float
    infer_ms: float
    post_ms: float


class Source(msgspec.Struct, frozen=True):
    """Where the frame came from: the idempotency key of the result.

    Attributes:
        topic, partition, offset: the record's coordinates.
        frame: which of the record's answered frames this is, counted from 0; 0 for a picture.
        frames: how many answered frames the record has: 1 for a picture; of a segment in the result
            of its last frame, null in the others.
    """

    topic: str
    partition: int
    offset: int
    frame: int = 0
    frames: int | None = 1


class ResultMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The one answer to one frame.

    Attributes:
        v: version of the format, 1.
        stream_id: the frame's, or the made-up one of a record without any.
        seq: the frame's.
        captured_at_us: the frame's, Unix microseconds.
        status: how it was answered.
        width, height: the picture as displayed, pixels (EXIF orientation applied).
        detections: best score first; empty unless status is `ok`.
        model: which model answered; null where none did.
        batch: the batch the frame was in; null unless status is `ok`.
        times: when and how long.
        source: where the frame came from, the idempotency key.
        meta: the frame's, untouched.
        clock_skew: captured_at_us was more than 5 s in the future, receipt time was used instead.
        attempts: how often the frame was tried, ≥ 1; more than 1 after a replay of its dead letter,
            after a process that died with it inside, or when memory ran out.
    """

    v: int = RESULT_VERSION
    stream_id: str
    seq: int
    captured_at_us: int
    status: Status
    width: int
    height: int
    detections: list[Detection] = []
    model: ModelInfo | None = None
    batch: BatchInfo | None = None
    times: Times
    source: Source
    meta: dict[str, str] = {}
    clock_skew: bool = False
    attempts: int = 1
