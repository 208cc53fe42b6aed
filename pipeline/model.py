"""Ultralytics YOLOv8 detection models through torch: float32 on CPU and CUDA, half precision on
CUDA."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pipeline.bucket import Bucket
from pipeline.checkpoint import read_checkpoint
from pipeline.cuda_runtime import device_errors
from pipeline.half import to_half
from pipeline.letterbox import PAD_VALUE
from pipeline.torch_device import find_device
from schemas.errors import ConfigError
from schemas.result import ModelInfo


class YoloModel:
    """A YOLOv8 detection network: uint8 frames in, raw predictions out. Implements `Model`.

    Calls may come from any thread, one at a time: the head keeps the anchors of the last shape
    (batch size included) between calls, so two calls at once would mix them. A second call while
    one runs raises RuntimeError.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        *,
        info: ModelInfo,
        labels: Mapping[int, str],
        device: torch.device,
        threads: int = 0,
    ) -> None:
        """Use `load_model`, which checks what it hands over.

        Args:
            network: fused, in eval mode, on `device`, float32 or as `to_half` leaves it; returns
                (predictions, …), float32.
            info, labels: what to report.
            device: where it runs.
            threads: torch's threads within one operation; 0 leaves torch's choice.
        """
        # Channels last is 1.3 to 2 times as fast on a CPU, and what the tensor cores of a GPU work
        # on; and frames lie in that order already.
        self._network = network.to(memory_format=torch.channels_last)
        self._dtype = next(network.parameters()).dtype
        stride: Any = network.stride
        self._stride = int(stride.max())
        self._info = info
        self._labels = dict(labels)
        self._device = device
        self._threads = threads
        self._running = threading.Lock()
        self._prepared: int | None = None

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def labels(self) -> Mapping[int, str]:
        """Class id → label, ids 0..classes-1."""
        return self._labels

    @property
    def stride(self) -> int:
        """Bucket sides must be multiples of it, in pixels (32 for YOLOv8)."""
        return self._stride

    @property
    def device(self) -> torch.device:
        return self._device

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """Run every bucket's shape once alone and once at its largest batch.

        Raises:
            ConfigError: a bucket's side is not a multiple of the stride.
        """
        for bucket in buckets:
            if bucket.height % self._stride or bucket.width % self._stride:
                raise ConfigError(
                    f"bucket {bucket.name}: {bucket.width}x{bucket.height} must be multiples of "
                    f"the model's stride, {self._stride}"
                )
        largest: dict[tuple[int, int], int] = {}
        for bucket in buckets:
            shape = (bucket.height, bucket.width)
            largest[shape] = max(largest.get(shape, 1), bucket.max_batch)
        for (height, width), batch in largest.items():
            for n in sorted({1, batch}):
                self.infer(torch.full((n, height, width, 3), PAD_VALUE, dtype=torch.uint8))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        """Raw predictions of a batch.

        On CUDA the call returns before the device is done: wait for the current CUDA stream.

        Args:
            frames: uint8 (n, height, width, 3), RGB, 0..255, contiguous, on any device; height and
                width multiples of `stride`.

        Returns:
            float32 (n, 4 + classes, anchors) on `device`: box centre x, centre y, width, height in
            bucket pixels, then one score per class in 0..1.

        Raises:
            FatalError: the device failed and can no longer be used by this process.
            ValueError: frames of another type or shape (a bug).
            RuntimeError: two calls at once (a bug), or torch failed on this batch.
        """
        if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
            raise ValueError(
                f"frames must be uint8 (n, h, w, 3), not {frames.dtype} {frames.shape}"
            )
        if not self._running.acquire(blocking=False):
            raise RuntimeError("two threads run one model at once")
        try:
            self._prepare_thread()
            with device_errors():
                return self.forward(frames)
        finally:
            self._running.release()

    def _prepare_thread(self) -> None:
        # The thread count belongs to the calling thread (OpenMP), not to the process.
        thread = threading.get_ident()
        if thread != self._prepared:
            self._prepared = thread
            if self._threads:
                torch.set_num_threads(self._threads)

    @torch.inference_mode()
    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """`infer` without its checks and its names for errors, for a caller that has the model to
        itself: see `pipeline.cuda_graphs`."""
        planes = frames.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        planes = planes.to(self._dtype, memory_format=torch.channels_last).div_(255)
        return self._network(planes)[0]

    def kept(self) -> object:
        """The anchors and strides of the latest shape (batch size included): later runs of that
        shape read them, and a run of another shape replaces them."""
        layers: Any = self._network.model
        head = layers[-1]
        return head.anchors, head.strides


def load_model(
    path: str, *, device: str, conf: float, iou: float, threads: int = 0, half: bool = False
) -> YoloModel:
    """Load Ultralytics detection weights: fused, eval mode.

    Weights are trusted input: see `pipeline.checkpoint`.

    Args:
        path: a `.pt` file, or a name that Ultralytics publishes (e.g. `yolov8n.pt`).
        device: `cpu`, `cuda`, `cuda:N`, or `auto` for CUDA where there is one.
        conf, iou: the route's thresholds, reported in `ModelInfo`.
        threads: torch's threads within one operation on a CPU; 0 leaves torch's choice, one per
            core.
        half: float16 for all but the boxes' decoding; CUDA only.

    Raises:
        ConfigError: `half` without CUDA, no such file, not a checkpoint, not a detection model, a
            head or labels that this worker cannot serve, or no such device.
    """
    where = find_device(device)
    if half and where.type != "cuda":
        raise ConfigError(f"model {path}: fp16 needs CUDA; on {where} it would only be slower")
    found = read_checkpoint(path)
    network = found.network.fuse(verbose=False).float().eval().to(where)
    for weights in network.parameters():
        weights.requires_grad = False
    if half:
        to_half(network)
    backend = "torch-fp16" if half else "torch"
    info = ModelInfo(found.name, found.digest[:12], "detect", conf, iou, backend)
    return YoloModel(network, info=info, labels=found.labels, device=where, threads=threads)
