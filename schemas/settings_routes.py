"""Settings of routes and their buckets."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.frame import FramesPerSecond
from schemas.settings_types import (
    BucketSide,
    Count,
    Label,
    Positive,
    Text,
    Topic,
    Unit,
)

AUTO_CEILING = 64
"""The largest batch that `max_batch: auto` looks for."""


class BucketSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target shape. Buckets with the same `max_source_pixels` form a tier.

    Attributes:
        name: unique within the route; stands in metrics and results.
        max_source_pixels: the largest displayed picture (width × height) of its tier; the top
            tier takes every larger one too.
        height: of the model's input, pixels, a multiple of 32.
        width: of the model's input, pixels, a multiple of 32.
        max_batch: most frames in one batch, 1 to 1024; or auto: the largest that has room in
            device.memory_fraction, up to 64, and no larger than where twice as many bring less
            than 5 % more frames per second; found at the start. A batch has fewer where larger ones
            were measured to be slower per frame, unless window.idle_launch is off.
    """

    name: Label
    max_source_pixels: Positive
    height: BucketSide
    width: BucketSide
    max_batch: Annotated[int, Meta(ge=1, le=1_024)] | Literal["auto"]

    @property
    def ceiling(self) -> int:
        """The most frames that `max_batch` can mean."""
        return AUTO_CEILING if self.max_batch == "auto" else self.max_batch


def _bucket(name: str, pixels: int, height: int, width: int, max_batch: int) -> BucketSettings:
    return BucketSettings(
        name=name, max_source_pixels=pixels, height=height, width=width, max_batch=max_batch
    )


DEFAULT_BUCKETS = (
    _bucket("480p", 420_000, 256, 448, 16),
    _bucket("480p-portrait", 420_000, 448, 256, 16),
    _bucket("1080p", 2_100_000, 384, 640, 16),
    _bucket("1080p-portrait", 2_100_000, 640, 384, 16),
    _bucket("4k", 50_000_000, 384, 640, 8),
    _bucket("4k-portrait", 50_000_000, 640, 384, 8),
)
"""Buckets of a route that names none: sized for a CPU, wide and tall shapes of three tiers.
854 × 480 (409,920 pixels) is inside the first tier, 1920 × 1080 (2,073,600) inside the second."""


class Backend(StrEnum):
    """What runs a route's model."""

    AUTO = "auto"
    """What the file is for; for weights, the fastest whose boxes are those of torch in float32."""
    TORCH = "torch"
    ONNX = "onnx"
    OPENVINO = "openvino"
    TENSORRT = "tensorrt"


class Precision(StrEnum):
    """What a network computes in."""

    AUTO = "auto"
    """What the file has; for weights fp32, and on CUDA with backend auto the faster of both."""
    FP32 = "fp32"
    FP16 = "fp16"


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From an input topic through a model to an output topic.

    Attributes:
        name: unique; stands in metrics.
        input: topic that frames come from; of one route only.
        output: topic that results go to.
        dead_letter: topic for records that can never succeed.
        model: weights file, or the name of Ultralytics' own (yolov8n.pt is fetched where possible);
            or an exported file: .onnx, a folder NAME_openvino_model, or .engine.
        backend: auto, torch, onnx, openvino or tensorrt. Weights are exported for it into
            device.model_cache_dir. A backend whose boxes are not those of torch in float32 is
            refused.
        precision: auto, fp32 or fp16 (torch: on CUDA only).
        conf: least score of a detection, 0 to 1.
        iou: overlap above which the weaker of two boxes is dropped, 0 to 1.
        max_det: most detections of one frame, 1 to limits.max_detections.
        classes: ids of the classes to keep, or null for all.
        sample_every: infer every n-th frame of a stream, at least 1; the others are answered
            `skipped`.
        segment_sample_every: of a segment of video that does not say, answer every n-th frame, at
            least 1; the others have no answer.
        segment_sample_fps: of a segment that does not say, answer so many frames per second, above
            0 to 1000; null for segment_sample_every.
        buckets: target shapes; at least one.
    """

    name: Label = "default"
    input: Topic = "frames"
    output: Topic = "detections"
    dead_letter: Topic = "frames.dlq"
    model: Text = "bench/assets/frameloom-demo.pt"
    backend: Backend = Backend.AUTO
    precision: Precision = Precision.AUTO
    conf: Unit = 0.25
    iou: Unit = 0.7
    max_det: Positive = 300
    classes: Annotated[list[Count], Meta(min_length=1)] | None = None
    sample_every: Positive = 1
    segment_sample_every: Positive = 1
    segment_sample_fps: FramesPerSecond | None = None
    buckets: Annotated[list[BucketSettings], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: list(DEFAULT_BUCKETS)
    )
