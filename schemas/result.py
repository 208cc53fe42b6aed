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


class Detection(msgspec.Struct, frozen=True):
    """One object. `box` is x1, y1, x2, y2 in displayed source pixels (EXIF orientation applied),
    0 ≤ x ≤ width, 0 ≤ y ≤ height; `score` is in 0..1."""

    box: tuple[float, float, float, float]
    score: float
    class_id: int
    label: str


class ModelInfo(msgspec.Struct, frozen=True):
    """Which model answered. `version` is the first 12 hex digits of the weights' SHA-256."""

    name: str
    version: str
    task: str
    conf: float
    iou: float


class BatchInfo(msgspec.Struct, frozen=True):
    """The batch a frame was in. `index` is its row, 0 ≤ index < size."""

    bucket: str
    lane: str
    size: int
    index: int
    closed_by: ClosedBy


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Unix microseconds (`*_us`) and stage durations in milliseconds of the frame's batch."""

    received_us: int
    batched_us: int
    started_us: int
    finished_us: int
    decode_ms: float
    infer_ms: float
    post_ms: float


class Source(msgspec.Struct, frozen=True):
    """Where the frame came from: the idempotency key of the result."""

    topic: str
    partition: int
    offset: int


class ResultMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """The one answer to one frame. `batch`, `times` beyond `received_us`, and `detections` are
    empty (None / zero / []) when `status` is not `ok`."""

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
