"""Memory that runs out in each library, for real: the batch is halved, and answered rightly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.random_weights import write_random_yolov8
from pipeline.cuda_runtime import device_errors
from pipeline.shortage import is_shortage
from schemas.settings import Backend

DEADLINE_S = 600.0

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

LIMITED = pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_yolov8(
        tmp_path_factory.mktemp("weights") / "narrow.pt", width=0.125, classes=3
    )


@LIMITED
@pytest.mark.parametrize("backend", [Backend.TORCH, Backend.ONNX, Backend.OPENVINO])
def test_a_batch_without_memory_is_halved_and_answered_as_with_plenty(
    backend: Backend, weights: Path, tmp_path: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.contract.short_of_memory", backend.value, weights, tmp_path],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    short, capped, plenty = found["short"], found["capped"], found["plenty"]
    # How much an allocator still has in store is its own affair; the whole batch is too much.
    assert short["fits"] in (1, 2, 4, 8, 16)
    assert (capped["fits"], plenty["fits"]) == (None, None)
    assert (short["errors"], capped["errors"], plenty["errors"]) == ([], [], [])
    assert sum(map(len, plenty["boxes"])) > 0, "a comparison without a box says nothing"
    for answered in (short, capped):
        for boxes, expected in zip(answered["boxes"], plenty["boxes"], strict=False):
            torch.testing.assert_close(
                torch.tensor(boxes), torch.tensor(expected), rtol=0.0, atol=0.5
            )


@pytest.mark.parametrize(
    "said",
    [
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.",
        "Failed to allocate memory for requested buffer of size 8388608000",
        "Check 'ptr' failed at cpu_memory.cpp:257: Failed to allocate 8 bytes of memory",
        "[CPU] Transpose node with name 'x' can't allocate",
        "std::bad_alloc",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_what_libraries_say_is_known(said: str) -> None:
    assert is_shortage(RuntimeError(said))
    with pytest.raises(MemoryError), device_errors():
        raise RuntimeError(said)


def test_what_says_nothing_of_memory_is_something_else() -> None:
    assert not is_shortage(RuntimeError("Got invalid dimensions for input"))
    with pytest.raises(RuntimeError, match="dimensions"), device_errors():
        raise RuntimeError("Got invalid dimensions for input")
