"""CUDA's place taken by the processor: rehearses the CUDA device where there is no GPU.

Work is done when it is put into a stream, so every event has passed when it is recorded. What a
rehearsal shows is that the check runs to its end, and nothing about speed or overlap.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch

from pipeline.cuda_graphs import Captured, Forward
from pipeline.cuda_runtime import CudaEvent, CudaStream


class _Stream:
    def wait_event(self, event: CudaEvent) -> None:
        """It has passed."""


@dataclass
class _Event:
    at: float = 0.0

    def synchronize(self) -> None:
        """It has passed."""


class HostRuntime:
    """Implements `CudaRuntime` in main memory."""

    def stream(self, kind: str, *, high_priority: bool = False) -> CudaStream:  # noqa: ARG002 (the protocol's)
        return _Stream()

    def event(self) -> CudaEvent:
        return _Event()

    def record(self, event: CudaEvent, stream: CudaStream) -> None:  # noqa: ARG002 (the protocol's)
        cast("_Event", event).at = time.monotonic()

    def elapsed_s(self, start: CudaEvent, end: CudaEvent) -> float:
        return cast("_Event", end).at - cast("_Event", start).at

    def on(self, stream: CudaStream) -> AbstractContextManager[object]:  # noqa: ARG002 (the protocol's)
        return nullcontext()

    def named(self, name: str) -> AbstractContextManager[object]:  # noqa: ARG002 (the protocol's)
        return nullcontext()

    def device_buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def pinned_buffer(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def on_host(self, pinned: torch.Tensor) -> torch.Tensor:
        return pinned


class HostGraphs:
    """Implements `Graphs`: a replay is the run itself."""

    def warm_up(self, run: Forward) -> None:
        run()

    def capture(self, run: Forward) -> Captured:
        output = run().clone()

        def replay() -> None:
            output.copy_(run())

        return Captured(replay, output)

    def recover(self) -> None:
        """Nothing is lost."""
