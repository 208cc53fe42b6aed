"""CUDA graphs: a model's whole run recorded once per shape, then started with a single call.

For a small network launching its two hundred kernels one by one costs more than running them. A
graph fixes shapes and addresses, so there is one per (bucket shape, padded batch size), over a
static input. What the head keeps between runs (its anchors) belongs to the graph that was recorded
with it: the head itself forgets it at the next shape, and the graph would read freed memory.

All graphs of a device share one pool of memory, and those of one shape their static input. That is
sound because they never overlap: the device puts an event between any two batches. A graph's
predictions hold until the next graph runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from pipeline.bucket import Bucket
from pipeline.cuda_runtime import device_errors
from pipeline.letterbox import PAD_VALUE
from pipeline.ports import Model
from pipeline.stand_in import StandIn
from schemas.errors import FatalError

log = logging.getLogger(__name__)

WARM_UP_RUNS = 3
"""Before a capture: libraries choose kernels and take their workspaces in the first runs, which
must not happen inside (PyTorch's CUDA semantics, "CUDA graphs")."""

Forward = Callable[[], torch.Tensor]


@runtime_checkable
class GraphableModel(Model, Protocol):
    """A model whose runs may be recorded: no work on the processor that depends on values, no wait
    for the device, nothing moved between devices."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """As `infer`, with frames on the model's device and errors as torch raises them. One thread
        at a time."""
        ...

    def kept(self) -> object:
        """What the latest run keeps for later runs of its shape, and reads there."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A recorded run: `replay` puts it into the current stream; `output` is where it leaves its
    result."""

    replay: Callable[[], None]
    output: torch.Tensor


class Graphs(Protocol):
    """Records runs. `TorchGraphs` is the real one."""

    def warm_up(self, run: Forward) -> None:
        """Run it on a side stream and wait for it."""
        ...

    def capture(self, run: Forward) -> Captured:
        """Record it. Raises whatever stands against it."""
        ...

    def recover(self) -> None:
        """After an error in `warm_up` or `capture`: free memory and see whether the device lives.

        Raises:
            FatalError: it does not.
        """
        ...


class TorchGraphs:
    """Records through torch, on a stream and in a pool of memory of its own. Implements `Graphs`.

    To be used before the device's threads start: while one thread records, calls of others that
    allocate are errors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        # Shapes are few and fixed: measuring each library's kernels once pays.
        torch.backends.cudnn.benchmark = True

    def warm_up(self, run: Forward) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_RUNS):
                run()
        self._stream.synchronize()

    def capture(self, run: Forward) -> Captured:
        graph = torch.cuda.CUDAGraph()
        # The outer context puts the current stream back; the inner one does not when it fails.
        with (
            torch.cuda.stream(torch.cuda.current_stream(self._device)),
            torch.cuda.graph(graph, pool=self._pool, stream=self._stream),
        ):
            output = run()
        return Captured(graph.replay, output)

    def recover(self) -> None:
        try:
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            alive = torch.ones(1, device=self._device) + 1
            torch.cuda.synchronize(self._device)
        except torch.AcceleratorError as error:
            raise FatalError(f"the device failed while recording a graph: {error}") from error
        del alive


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """One recorded run.

    Attributes:
        frames: uint8 (size, height, width, 3), its static input.
        run: how to start it, and its predictions.
        kept: anchors of this shape, kept alive here.
    """

    frames: torch.Tensor
    run: Captured
    kept: object


class GraphedModel(StandIn[GraphableModel]):
    """A model behind graphs. Implements `Model`; where no graph could be recorded it runs as ever.

    Args:
        model: on a GPU.
        graphs: records; may be shared by models whose batches never overlap.
    """

    def __init__(self, model: GraphableModel, graphs: Graphs) -> None:
        super().__init__(model)
        self._recorder = graphs
        self._graphs: dict[tuple[int, int], dict[int, _Graph]] = {}
        self._running = threading.Lock()

    @property
    def sizes(self) -> Mapping[tuple[int, int], tuple[int, ...]]:
        """(height, width) → batch sizes that have a graph, rising."""
        return {shape: tuple(sorted(graphs)) for shape, graphs in self._graphs.items()}

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """Run every bucket's shapes once, then record them.

        Raises:
            ConfigError: a bucket's side is not a multiple of the stride.
            FatalError: the device failed.
        """
        self._model.warm_up(buckets)
        largest: dict[tuple[int, int], int] = {}
        for bucket in buckets:
            shape = (bucket.height, bucket.width)
            largest[shape] = max(largest.get(shape, 1), bucket.max_batch)
        for shape, batch in largest.items():
            self._record_shape(shape, batch)

    def prefer(self, bucket: Bucket, size: int) -> None:
        """Record a graph of the size, besides 1, 2, 4, 8, … and the largest, for the bucket's
        shape: the batcher ends batches there, and they need not be padded then. What is known only
        once the graphs are there and were measured, so it comes after `warm_up`.

        Raises:
            FatalError: the device failed.
        """
        graphs = self._graphs.get((bucket.height, bucket.width), {})
        if size not in graphs and size < max(graphs, default=0):
            graph = self._record(graphs[max(graphs)].frames[:size])
            if graph is not None:
                graphs[size] = graph

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        """See `Model.infer`. A batch without a graph of its size runs in the next larger one; the
        rows beyond it then hold frames of earlier batches, and their predictions are left out.

        Returns:
            float32 (n, 4 + classes, anchors), overwritten by the next call.

        Raises:
            RuntimeError: two calls at once (a bug), or torch failed on this batch.
            FatalError: the device failed.
        """
        n, height, width, _ = frames.shape
        size, graph = self._graph(n, (height, width))
        if graph is None:
            return self._model.infer(frames)
        if not self._running.acquire(blocking=False):
            raise RuntimeError("two threads run one model at once")
        try:
            with device_errors():
                graph.frames[:n].copy_(frames, non_blocking=True)
                graph.run.replay()
                return graph.run.output[:n] if n < size else graph.run.output
        finally:
            self._running.release()

    def _graph(self, n: int, shape: tuple[int, int]) -> tuple[int, _Graph | None]:
        graphs = self._graphs.get(shape, {})
        size = min((size for size in graphs if size >= n), default=0)
        return size, graphs.get(size)

    def _record_shape(self, shape: tuple[int, int], batch: int) -> None:
        """The largest size first: the others then find room in the pool that it has filled."""
        height, width = shape
        static = torch.full(
            (batch, height, width, 3), PAD_VALUE, dtype=torch.uint8, device=self._model.device
        )
        for size in reversed(padded_sizes(batch)):
            graph = self._record(static[:size])
            if graph is not None:
                self._graphs.setdefault(shape, {})[size] = graph

    def _record(self, frames: torch.Tensor) -> _Graph | None:
        """The graph over these frames, or None (logged) where it cannot be recorded."""

        def run() -> torch.Tensor:
            return self._model.forward(frames)

        try:
            self._recorder.warm_up(run)
            return _Graph(frames, self._recorder.capture(run), self._model.kept())
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - without a graph the model runs as ever
            size, height, width, _ = frames.shape
            shortage = f"{type(error).__name__}: {error}"
        # Out here the error is gone, and with it the frames that kept its memory.
        self._recorder.recover()
        log.warning(
            "no CUDA graph for %d frames of %dx%d, they run without: %s",
            size,
            width,
            height,
            shortage,
        )
        return None


def padded_sizes(largest: int) -> tuple[int, ...]:
    """Batch sizes that get a graph, rising: powers of two and the largest."""
    powers = {1 << power for power in range(largest.bit_length()) if 1 << power <= largest}
    return tuple(sorted(powers | {largest}))
