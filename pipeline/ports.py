"""The ports: what the engine and the worker ask of the machinery behind them.

Each protocol has at least one real implementation and a fake in `tests/fakes/`; a contract suite
in `tests/contract/` runs against both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.bucket import Bucket
from pipeline.item import Batch, Item, Outcome, StageTimes
from pipeline.letterbox import Letterbox
from pipeline.segment import Sampling, SegmentFrame
from pipeline.table import Table
from schemas.errors import FatalError, PoisonError
from schemas.frame import FrameMessage
from schemas.result import Detection, ModelInfo

if TYPE_CHECKING:
    import torch

Clock = Callable[[], float]
"""Monotonic seconds. `time.monotonic` in production, a virtual clock in tests."""


class Decoder(Protocol):
    """Turns the encoded pictures of a batch into rows of a tensor. Used by one thread at a time."""

    @property
    def name(self) -> str:
        """`opencv`, `dali-cpu`, `dali-gpu`, `torchvision-gpu`. One that ends in `-gpu` writes rows
        on the GPU itself; to others main memory is nearer."""
        ...

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        """Decode, orient and letterbox `items[i].frame.data` into `out[i]`.

        All items share one bucket; `items[i].geometry` says where the picture lies in it.

        Args:
            items: n work orders, n ≥ 1.
            out: uint8, shape (≥ n, bucket.height, bucket.width, 3), channels RGB, contiguous.
                Every pixel of a decoded row is written, padding (`PAD_VALUE`) included.

        Returns:
            One entry per item: None, or why this picture cannot be decoded (its row is then
            unspecified). A bad picture never raises and never touches its neighbours.
        """
        ...

    def close(self) -> None:
        """Release threads and pipelines. Safe to call twice."""
        ...


class SegmentReader(Protocol):
    """An open segment of video, read one step at a time. Used by one thread."""

    @property
    def frame_bytes(self) -> int:
        """About how many bytes the next frame's pixels take (RGB), before they are there."""
        ...

    def step(self) -> SegmentFrame | None:
        """Make at most one native call. A frame, or None when more steps are needed; after a frame
        that is the `last` there is nothing more.

        Raises:
            PoisonError: the segment ends here, and something is wrong with it. Every good frame
                before was returned.
            MemoryError: this step found no memory, and the reader is of no more use.
        """
        ...

    def close(self) -> None:
        """Release what it holds. Safe to call twice."""
        ...


class SegmentDecoder(Protocol):
    """Turns segments of video into frames, lazily. Used by one thread at a time."""

    @property
    def name(self) -> str:
        """`pyav-cpu`, `pyav-nvdec`."""
        ...

    def open(self, segment: FrameMessage, sampling: Sampling) -> SegmentReader:
        """Look at the container and find its video.

        Raises:
            PoisonError: nothing of it can be decoded.
            MemoryError: there was none for it.
        """
        ...


class Model(Protocol):
    """A detection model. One thread runs it: its head caches state between calls."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def labels(self) -> Mapping[int, str]:
        """Class id → label."""
        ...

    @property
    def stride(self) -> int:
        """Sides of `frames` are multiples of it, pixels."""
        ...

    @property
    def device(self) -> torch.device:
        """Where `infer` leaves its predictions."""
        ...

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """Run every bucket's shapes once, so that no frame pays for first-call work."""
        ...

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        """Raw predictions of uint8 RGB frames, shape (n, height, width, 3).

        On a GPU the call returns before the work is done, and the next call may overwrite what
        this one returned: later work in the same stream, before that call, may read it.

        Returns:
            float32, shape (n, 4 + classes, anchors): box centre x, centre y, width, height in
            bucket pixels, then one score per class in 0..1. On the model's device.
        """
        ...


class Postprocessor(Protocol):
    """Raw predictions → detections in displayed source pixels (NMS for the whole batch)."""

    def detections(
        self, raw: torch.Tensor, geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        """One tuple per row of `raw`, best score first. `answers` of what `keep` finds."""
        ...

    @property
    def max_det(self) -> int:
        """Most detections of one picture."""
        ...

    def keep(self, raw: torch.Tensor) -> torch.Tensor:
        """What is left of the predictions: a `pipeline.table.Table` as a tensor, on the device of
        `raw` and in its current stream."""
        ...

    def answers(
        self, tables: Sequence[Table], geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        """One tuple per picture, of its part of the table that `keep` made."""
        ...


@dataclass(frozen=True, slots=True)
class Lane:
    """What a device needs to run one route's batches.

    Attributes:
        decodes_on_gpu: the decoder's rows are best written in the memory of the GPU; other
            decoders write main memory.
        buckets: whose largest batches a GPU keeps memory for.
    """

    decoder: Decoder
    model: Model
    postprocessor: Postprocessor
    decodes_on_gpu: bool = False
    buckets: tuple[Bucket, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BatchDone:
    """A batch that left its device: one outcome per item, in the batch's order.

    Attributes:
        fits: where memory ran out, the most of its rows that went through at once; else None.
        model_s: what the model took as calibration measures it, seconds; None where that is
            `times.infer_s`, or cannot be told. On a CPU it is processor time over the model's
            threads: other work on the same cores makes the time on the clock longer.
    """

    batch: Batch
    outcomes: tuple[Outcome, ...]
    times: StageTimes
    fits: int | None = None
    model_s: float | None = None


class Device(Protocol):
    """Runs closed batches in slots. All methods belong to the engine thread and never block;
    the device's own threads do the work and call the listener when anything changes."""

    @property
    def free_slots(self) -> int:
        """Batches that `start` would take right now."""
        ...

    @property
    def compute_idle(self) -> bool:
        """True when no batch is before or inside the model stage."""
        ...

    @property
    def failure(self) -> FatalError | None:
        """Set when the device can no longer be trusted; the process must end."""
        ...

    def listen(self, notify: Callable[[], None]) -> None:
        """`notify` is called (from any thread, never blocking) after a slot became free, a batch
        finished or a failure was set."""
        ...

    def start(self, batch: Batch) -> None:
        """Put a batch into a free slot. Raises RuntimeError when there is none."""
        ...

    def collect(self) -> list[BatchDone]:
        """Finished batches since the last call, oldest first."""
        ...

    def close(self) -> None:
        """End the device's threads after the work before it. Never blocks; safe to call twice."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads' end after `close` and release what they used. True when all
        ended in time. The one method that blocks, and not the engine thread's."""
        ...
