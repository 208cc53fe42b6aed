"""Whatever a backend's library does to a thread, its signals are Python's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.random_weights import write_random_yolov8
from schemas.settings import Backend

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

# Loaded and used in the main thread, where signals are handled, and released by another.
_SCRIPT = """
import gc, signal, sys, threading
from pathlib import Path
from pipeline.backend_files import Loading
from pipeline.backends import ModelOrder, open_model
from pipeline.bucket import Bucket
from schemas.settings import Backend, Precision
from tests.builders_models import some_frames

weights, backend, cache = sys.argv[1:]
buckets = (Bucket("wide", 100, 64, 96, 2),)
loading = Loading(device="cpu", conf=0.25, iou=0.7, threads=1)
order = ModelOrder(weights, Backend(backend), Precision.AUTO, buckets, loading, Path(cache))
held = [open_model(order)]
held[0].model.warm_up(buckets)
held[0].model.infer(some_frames(2))
releasing = threading.Thread(target=lambda: (held.clear(), gc.collect()))
releasing.start()
releasing.join()
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append("SIGTERM"))
signal.raise_signal(signal.SIGTERM)
print(seen)
"""


@pytest.mark.parametrize("backend", [Backend.TORCH, Backend.ONNX, Backend.OPENVINO])
def test_a_model_that_another_thread_releases_leaves_signals_as_they_were(
    backend: Backend, tmp_path: Path
) -> None:
    weights = write_random_yolov8(tmp_path / "narrow.pt", width=0.125, classes=3)
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT, weights, backend.value, tmp_path],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.splitlines()[-1:]) == (0, ["['SIGTERM']"]), ran.stderr
