"""The real runtime's calls of torch, with torch's CUDA classes replaced: no GPU is needed to see
that what is asked for is what torch is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from pipeline.cuda_graphs import WARM_UP_RUNS, TorchGraphs
from pipeline.cuda_runtime import TorchCuda, device_errors
from schemas.errors import FatalError

DEVICE = torch.device("cuda", 1)


class Calls:
    """Stands in for `torch.cuda`, and remembers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[Any] = []
        self.now = 0.0
        calls = self

        class Stream:
            def __init__(self, device: torch.device, priority: int = 0) -> None:
                self.name = "high" if priority < 0 else "normal"
                assert device == DEVICE

            def wait_stream(self, other: Stream) -> None:
                calls.log.append(("wait_stream", self.name, other.name))

            def synchronize(self) -> None:
                calls.log.append(("synchronize", self.name))

        class Event:
            def __init__(self, *, enable_timing: bool, blocking: bool) -> None:
                assert enable_timing
                assert blocking
                self.at = 0.0

            def record(self, stream: Stream) -> None:
                calls.now += 250.0
                self.at = calls.now
                calls.log.append(("record", stream.name))

            def elapsed_time(self, end: Event) -> float:
                return end.at - self.at

        class CUDAGraph:
            def replay(self) -> None:
                calls.log.append("replay")

        @contextmanager
        def stream(of: Stream) -> Iterator[None]:
            calls.log.append(("enter", of.name))
            try:
                yield
            finally:
                calls.log.append(("leave", of.name))

        @contextmanager
        def graph(of: CUDAGraph, pool: object, stream: Stream) -> Iterator[None]:
            calls.log.append(("capture", pool, stream.name))
            yield

        self.current = Stream(DEVICE)
        self.current.name = "current"
        for name, value in {
            "Stream": Stream,
            "Event": Event,
            "CUDAGraph": CUDAGraph,
            "stream": stream,
            "graph": graph,
            "graph_pool_handle": lambda: "pool",
            "current_stream": lambda device: self.current,
            "synchronize": lambda device: self.log.append("synchronize"),
            "empty_cache": lambda: self.log.append("empty_cache"),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.cuda.nvtx, "range_push", self.log.append)
        monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: self.log.append("pop"))
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def test_streams_events_and_ranges_are_torchs(calls: Calls) -> None:
    cuda = TorchCuda(DEVICE)
    first, last = cuda.event(), cuda.event()
    compute = cuda.stream("compute", high_priority=True)
    cuda.record(first, cuda.stream("copy"))
    cuda.record(last, compute)
    assert cuda.elapsed_s(first, last) == pytest.approx(0.25)
    with cuda.on(compute), cuda.named("infer 480p"):
        calls.log.append("work")
    assert calls.log == [
        ("record", "normal"),
        ("record", "high"),
        ("enter", "high"),
        "infer 480p",
        "work",
        "pop",
        ("leave", "high"),
    ]


def test_a_range_ends_with_what_fails_in_it(calls: Calls) -> None:
    with pytest.raises(ValueError, match="x"), TorchCuda(DEVICE).named("nms"):
        raise ValueError("x")
    assert calls.log == ["nms", "pop"]


def test_graphs_warm_up_and_record_on_a_stream_of_their_own(calls: Calls) -> None:
    graphs = TorchGraphs(DEVICE)
    assert torch.backends.cudnn.benchmark

    def run() -> torch.Tensor:
        calls.log.append("run")
        return torch.ones(1)

    graphs.warm_up(run)
    assert calls.log == [
        ("wait_stream", "normal", "current"),
        ("enter", "normal"),
        *["run"] * WARM_UP_RUNS,
        ("leave", "normal"),
        ("synchronize", "normal"),
    ]
    calls.log.clear()
    captured = graphs.capture(run)
    captured.replay()
    assert captured.output.tolist() == [1.0]
    assert calls.log == [
        ("enter", "current"),  # which is put back even when the capture leaves it
        ("capture", "pool", "normal"),
        "run",
        ("leave", "current"),
        "replay",
    ]


def test_a_device_that_lives_after_a_failed_capture_goes_on(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "ones", lambda size, device: torch.zeros(size))
    TorchGraphs(DEVICE).recover()
    assert calls.log == ["synchronize", "empty_cache", "synchronize"]


def test_a_device_that_does_not_is_fatal(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(device: torch.device) -> None:
        raise torch.AcceleratorError("an illegal memory access")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(FatalError, match="illegal memory access"):
        TorchGraphs(DEVICE).recover()


@pytest.mark.parametrize(("code", "becomes"), [(2, MemoryError), (700, FatalError)])
def test_errors_of_the_device_are_named(code: int, becomes: type[Exception]) -> None:
    error = torch.AcceleratorError("CUDA error")
    error.error_code = code  # as torch sets it
    with pytest.raises(becomes), device_errors():
        raise error


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="x"), device_errors():
        raise ValueError("x")
    with pytest.raises(torch.OutOfMemoryError), device_errors():
        raise torch.OutOfMemoryError
