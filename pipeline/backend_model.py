"""An exported detection model behind the `Model` port; the libraries' own part is a `Runner`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch

from pipeline.bucket import Bucket
from pipeline.exported import ExportInfo, Shape, wrong_shapes
from pipeline.letterbox import PAD_VALUE
from schemas.errors import ConfigError
from schemas.result import ModelInfo


class Runner(Protocol):
    """A library with a file loaded. Used by one thread at a time."""

    @property
    def backend(self) -> str:
        """`onnx`, `openvino`, `tensorrt`; `-fp16` behind it for half precision."""
        ...

    @property
    def device(self) -> torch.device: ...

    def prepare(self, height: int, width: int) -> None:
        """Compile what this shape needs. Called once before `run` sees it."""
        ...

    def run(self, frames: torch.Tensor) -> torch.Tensor:
        """See `Model.infer`; the result is the caller's to keep."""
        ...


class ExportedModel:
    """Implements `Model`. Calls may come from any thread, one at a time; a second call while one
    runs raises RuntimeError."""

    def __init__(self, runner: Runner, info: ExportInfo, *, conf: float, iou: float) -> None:
        """Args:
        runner: with the file loaded.
        info: the file's description.
        conf, iou: the route's thresholds, reported in `ModelInfo`.
        """
        self._runner = runner
        self._about = info
        self._info = ModelInfo(
            info.name, info.digest[:12], info.task, conf, iou, backend=runner.backend
        )
        self._running = threading.Lock()
        self._prepared: set[tuple[int, int]] = set()

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def about(self) -> ExportInfo:
        """The file's description."""
        return self._about

    @property
    def labels(self) -> Mapping[int, str]:
        """Class id → label, ids 0..classes-1."""
        return self._about.labels

    @property
    def stride(self) -> int:
        return self._about.stride

    @property
    def device(self) -> torch.device:
        return self._runner.device

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """Compile every bucket's shape, and run it once alone and once at its largest batch.

        Raises:
            ConfigError: a bucket's side is no multiple of the stride, the file does not serve its
                shape, or its predictions are of another shape.
        """
        self.check_shapes(buckets)
        for shape in bucket_shapes(buckets):
            for n in sorted({1, shape.max_batch}):
                size = (n, shape.height, shape.width, 3)
                raw = self.infer(torch.full(size, PAD_VALUE, dtype=torch.uint8, device=self.device))
                if raw.ndim != 3 or tuple(raw.shape[:2]) != (n, 4 + len(self.labels)):
                    raise ConfigError(
                        f"model {self._about.source} ({self._info.backend}): its predictions are "
                        f"{tuple(raw.shape)} where {(n, 4 + len(self.labels), 'anchors')} belong"
                    )

    def check_shapes(self, buckets: Sequence[Bucket]) -> None:
        """Raises ConfigError for a bucket that the file does not serve."""
        check_strides(buckets, self.stride)
        shapes = bucket_shapes(buckets)
        unserved = wrong_shapes(self._about, shapes)
        if unserved:
            wanted = ", ".join(f"{s.height}x{s.width} at {s.max_batch}" for s in unserved)
            served = ", ".join(f"{s.height}x{s.width} at {s.max_batch}" for s in self._about.shapes)
            raise ConfigError(
                f"model {self._about.source} ({self._info.backend}): buckets need {wanted}; the "
                f"file serves {served}. Export it for these buckets, or with --dynamic"
            )

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        """See `Model.infer`.

        Raises:
            ValueError: frames of another type or shape (a bug).
            RuntimeError: two calls at once (a bug), or the library failed on this batch.
        """
        if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
            raise ValueError(
                f"frames must be uint8 (n, h, w, 3), not {frames.dtype} {frames.shape}"
            )
        if not self._running.acquire(blocking=False):
            raise RuntimeError("two threads run one model at once")
        try:
            shape = (int(frames.shape[1]), int(frames.shape[2]))
            if shape not in self._prepared:
                self._runner.prepare(*shape)
                self._prepared.add(shape)
            return self._runner.run(frames)
        finally:
            self._running.release()


def bucket_shapes(buckets: Iterable[Bucket]) -> tuple[Shape, ...]:
    """The distinct shapes of buckets, each with its largest batch, in the buckets' order."""
    largest: dict[tuple[int, int], int] = {}
    for bucket in buckets:
        key = (bucket.height, bucket.width)
        largest[key] = max(largest.get(key, 1), bucket.max_batch)
    return tuple(Shape(height, width, batch) for (height, width), batch in largest.items())


def check_strides(buckets: Iterable[Bucket], stride: int) -> None:
    """Raises ConfigError naming the first bucket whose sides are no multiples of the stride."""
    for bucket in buckets:
        if bucket.height % stride or bucket.width % stride:
            raise ConfigError(
                f"bucket {bucket.name}: {bucket.width}x{bucket.height} must be multiples of "
                f"the model's stride, {stride}"
            )


def planes_of(frames: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Frames as networks without our preprocessing take them: (n, 3, h, w), contiguous, 0..1."""
    return frames.permute(0, 3, 1, 2).to(dtype, memory_format=torch.contiguous_format).div_(255)
