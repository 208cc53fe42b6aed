"""A slot on a GPU: three streams, the events between them, and memory that never moves."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pipeline.bucket import Bucket
from pipeline.cuda_runtime import CudaRuntime
from pipeline.slot import Slot, frames_bytes, frames_shape
from pipeline.table import COLUMNS

_FLOAT, _DOUBLE = torch.float32.itemsize, torch.float64.itemsize


class CudaSlot(Slot):
    """What one batch needs on the device, for the largest batch of any bucket. Nothing is allocated
    after `reserve`.

    Attributes:
        copy, compute, results: streams; compute has high priority.
        began: on `copy`, before the batch's first work there.
        copied: on `copy`: the frames are on the device.
        started, inferred: on `compute`, around the model.
        returned: on `results`: the table is in main memory.
    """

    def __init__(self, index: int, runtime: CudaRuntime) -> None:
        super().__init__(index)
        self._runtime = runtime
        self.copy = runtime.stream("copy")
        self.compute = runtime.stream("compute", high_priority=True)
        self.results = runtime.stream("results")
        self.began = runtime.event()
        self.copied = runtime.event()
        self.started = runtime.event()
        self.inferred = runtime.event()
        self.returned = runtime.event()
        self._frames = self._staging = self._raw = self._table = torch.empty(0, dtype=torch.uint8)

    def reserve(self, bucket: Bucket, raw: torch.Size, max_det: int, *, staged: bool) -> None:
        """Make room for a bucket's largest batch. At the start only.

        Args:
            raw: shape of one row's predictions, (4 + classes, anchors).
            max_det: most rows of the table for one picture.
            staged: frames come by way of main memory.
        """
        size = bucket.max_batch
        device, pinned = self._runtime.device_buffer, self._runtime.pinned_buffer
        self._frames = _at_least(self._frames, frames_bytes(bucket), device)
        if staged:
            self._staging = _at_least(self._staging, frames_bytes(bucket), pinned)
        self._raw = _at_least(self._raw, size * raw.numel() * _FLOAT, device)
        rows = size * max_det
        self._table = _at_least(self._table, rows * COLUMNS * _DOUBLE, pinned)

    def frames(self, bucket: Bucket) -> torch.Tensor:
        """uint8 (bucket.max_batch, height, width, 3) on the device."""
        return self._frames[: frames_bytes(bucket)].view(frames_shape(bucket))

    def staging(self, bucket: Bucket) -> torch.Tensor:
        """The same in pinned memory, from which the device copies."""
        return self._staging[: frames_bytes(bucket)].view(frames_shape(bucket))

    def raw(self, n: int, row: torch.Size) -> torch.Tensor:
        """float32 (n, *row) on the device: the model's predictions."""
        nbytes = n * row.numel() * _FLOAT
        return self._raw[:nbytes].view(torch.float32).view(n, *row)

    def table(self) -> torch.Tensor:
        """float64 (rows, `COLUMNS`) in pinned memory: what the batch's pictures hold."""
        return self._table.view(torch.float64).view(-1, COLUMNS)


def _at_least(
    buffer: torch.Tensor, nbytes: int, allocate: Callable[[int], torch.Tensor]
) -> torch.Tensor:
    return buffer if buffer.numel() >= nbytes else allocate(nbytes)
