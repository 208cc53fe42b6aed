"""A slot on a GPU: three streams, the events between them, and memory that never moves."""

from __future__ import annotations

import torch

from pipeline.bucket import Bucket
from pipeline.cuda_runtime import CudaRuntime
from pipeline.slot import Slot, frames_bytes, frames_shape
from pipeline.table import COLUMNS

_FLOAT, _DOUBLE = torch.float32.itemsize, torch.float64.itemsize


class CudaSlot(Slot):
    """What one batch needs on the device, for the largest batch of any bucket. Nothing is allocated
    after the two `reserve_*`.

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

    def reserve_frames(self, nbytes: int, *, staged: bool) -> None:
        """Make room for the largest batch's frames. At the start only.

        Args:
            staged: they come by way of main memory.
        """
        self._frames = self._runtime.device_buffer(nbytes)
        if staged:
            self._staging = self._runtime.pinned_buffer(nbytes)

    def reserve_results(self, floats: int, table_rows: int) -> None:
        """Make room for the largest predictions and the longest table. At the start only."""
        self._raw = self._runtime.device_buffer(floats * _FLOAT)
        self._table = self._runtime.pinned_buffer(table_rows * COLUMNS * _DOUBLE)

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
