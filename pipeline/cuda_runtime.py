"""A thin seam over torch's CUDA streams, events and buffers.

The CUDA device asks for streams, events and memory here and nowhere else. A fake behind the same
protocols (`tests/fakes/cuda.py`) knows which access is ordered after which, and fails a test where
a buffer is used before it is ready or reused while it is still in use.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, cast

import torch

from pipeline.shortage import is_shortage
from schemas.errors import FatalError

_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation. The one error of an accelerator after which it goes on."""


class CudaEvent(Protocol):
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Block the calling thread until the point is passed. Raises what the work before it raised
        on the device."""
        ...


class CudaStream(Protocol):
    """A queue of work on the device."""

    def wait_event(self, event: CudaEvent) -> None:
        """Later work of this stream starts after `event`. Does not block."""
        ...


class CudaRuntime(Protocol):
    """What a CUDA device needs of CUDA. All sizes are fixed at the start."""

    def stream(self, kind: str, *, high_priority: bool = False) -> CudaStream:
        """A new stream.

        Args:
            kind: `copy`, `compute` or `results`, for tests and traces.
            high_priority: the device prefers its kernels to those of others.
        """
        ...

    def event(self) -> CudaEvent:
        """A new event that keeps its time. Waiting for it lets other threads run."""
        ...

    def record(self, event: CudaEvent, stream: CudaStream) -> None:
        """Put `event` behind all work that `stream` has now; what it stood for before is over."""
        ...

    def elapsed_s(self, start: CudaEvent, end: CudaEvent) -> float:
        """Seconds of device time between two events that have passed."""
        ...

    def on(self, stream: CudaStream) -> AbstractContextManager[object]:
        """Work of this thread goes to `stream` inside."""
        ...

    def named(self, name: str) -> AbstractContextManager[object]:
        """A range in a profiler's time line (NVTX)."""
        ...

    def device_buffer(self, nbytes: int) -> torch.Tensor:
        """uint8 (nbytes,) on the device. At the start only."""
        ...

    def pinned_buffer(self, nbytes: int) -> torch.Tensor:
        """uint8 (nbytes,) in main memory that the device copies from and to by itself. At the
        start only."""
        ...

    def on_host(self, pinned: torch.Tensor) -> torch.Tensor:
        """The same tensor, now for this thread to read and write: the caller has waited for
        whatever the device did with it."""
        ...


class TorchCuda:
    """The real runtime: one GPU through torch. Implements `CudaRuntime`; any thread may use it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def stream(self, kind: str, *, high_priority: bool = False) -> CudaStream:  # noqa: ARG002 (`kind` is for fakes)
        # Numbers below 0 are of higher priority; those beyond the device's range become its best.
        stream = torch.cuda.Stream(self._device, priority=-5 if high_priority else 0)
        return cast("CudaStream", stream)

    def event(self) -> CudaEvent:
        # `blocking` gives the processor away while a thread waits, instead of spinning.
        return cast("CudaEvent", torch.cuda.Event(enable_timing=True, blocking=True))

    def record(self, event: CudaEvent, stream: CudaStream) -> None:
        cast("torch.cuda.Event", event).record(cast("torch.cuda.Stream", stream))

    def elapsed_s(self, start: CudaEvent, end: CudaEvent) -> float:
        first, last = cast("torch.cuda.Event", start), cast("torch.cuda.Event", end)
        return first.elapsed_time(last) / 1e3

    def on(self, stream: CudaStream) -> AbstractContextManager[object]:
        return torch.cuda.stream(cast("torch.cuda.Stream", stream))

    @contextmanager
    def named(self, name: str) -> Generator[None]:
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()

    def device_buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)

    def pinned_buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def on_host(self, pinned: torch.Tensor) -> torch.Tensor:
        return pinned


@contextmanager
def device_errors() -> Generator[None]:
    """Names the errors of a device: memory that ran out, or an accelerator that is lost.

    Raises:
        MemoryError: a call found no memory, the device's or main memory; the device goes on.
        FatalError: any other error. CUDA's errors stay with the process: no later call succeeds.
    """
    try:
        yield
    except torch.AcceleratorError as error:
        if getattr(error, "error_code", None) == _OUT_OF_MEMORY:
            raise MemoryError(str(error)) from error
        raise FatalError(f"the device failed: {error}") from error
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if is_shortage(error):
            raise MemoryError(str(error)) from error
        raise
