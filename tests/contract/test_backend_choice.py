"""`backend: auto`: the fastest that passes parity, chosen once; and backends asked for by name."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.random_weights import write_random_yolov8
from pipeline import backend_choice
from pipeline.backend_choice import Order, choose, overall
from pipeline.backend_files import Loading
from pipeline.backends import ModelOrder, Opened, open_model
from pipeline.bucket import Bucket
from pipeline.calibrate import runs_of
from pipeline.exported import digest_of
from pipeline.memory import memory_of
from pipeline.memory_plan import frame_bytes
from pipeline.memory_trials import MemoryPlanner, Wish
from pipeline.model_cache import ModelCache
from pipeline.parity import Limits
from schemas.errors import ConfigError
from schemas.settings import Backend, Precision

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

LOADING = Loading(device="cpu", conf=0.25, iou=0.7, threads=1)
BUCKETS = (Bucket("wide", 100, 64, 96, 2), Bucket("tall", 100, 96, 64, 2))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    return write_random_yolov8(folder / "narrow.pt", width=0.0625, classes=2)


@pytest.fixture(scope="module")
def primed(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with both exports and no choice."""
    folder = tmp_path_factory.mktemp("primed")
    for backend in (Backend.ONNX, Backend.OPENVINO):
        opened(weights, folder, backend=backend)
    return folder


@pytest.fixture
def cache(primed: Path, tmp_path: Path) -> Path:
    """A test's own copy of it."""
    return Path(shutil.copytree(primed, tmp_path / "cache"))


def opened(weights: Path, cache: Path, **changes: Any) -> Opened:
    asked: dict[str, Any] = {
        "path": str(weights), "backend": Backend.AUTO, "precision": Precision.AUTO,
        "buckets": BUCKETS, "loading": LOADING, "cache": cache,
    }  # fmt: skip
    return open_model(ModelOrder(**asked | changes))


@pytest.fixture
def speeds(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Pictures per second that each backend is found to make; the test may change them."""
    figures = {"torch": 10.0, "onnx": 20.0, "openvino": 30.0}

    def scripted(models: Mapping[str, Any], *_: object) -> dict[str, dict[str, float]]:
        return {name: {"64x96×1": figures[name]} for name in models}

    monkeypatch.setattr(backend_choice, "measure", scripted)
    return figures


@pytest.mark.parametrize("fastest", ["torch", "openvino"])
def test_the_fastest_is_chosen_and_remembered(
    weights: Path, cache: Path, speeds: dict[str, float], fastest: str
) -> None:
    speeds[fastest] = 99.0
    first = opened(weights, cache)
    assert first.model.info.backend == first.choice.backend == fastest
    assert {f.backend for f in first.choice.figures} == {"torch", "onnx", "openvino"}
    assert not first.choice.cached
    assert first.warnings == ()
    speeds.clear()  # nothing is measured again
    second = opened(weights, cache)
    assert second.model.info.backend == fastest
    assert second.choice.cached
    assert second.choice.figures == first.choice.figures


LARGE = Bucket("large", 10**6, 320, 320, 4)
"""Whose workspace is a few MiB even of a narrow network."""


def workspace_of(found: Opened) -> int:
    """Bytes that the memory plan of a start finds for the model's runs."""
    planner = MemoryPlanner(memory_of(torch.device("cpu")), fraction=0.9, slots=1)
    run = runs_of(found.model, time.perf_counter)
    plans = planner.plan("default", [Wish(LARGE, auto=False)], run, len(found.model.labels))
    return plans[LARGE.name].workspace_bytes


@pytest.mark.parametrize("fastest", ["torch", "onnx", "openvino"])
def test_the_first_start_plans_as_much_memory_as_the_second(
    weights: Path, tmp_path: Path, speeds: dict[str, float], fastest: str
) -> None:
    speeds[fastest] = 99.0
    first, second = (
        opened(weights, tmp_path / "empty", buckets=(LARGE,), loading=LOADING) for _ in range(2)
    )
    assert (first.choice.cached, second.choice.cached) == (False, True)
    at_first, later = workspace_of(first), workspace_of(second)
    assert later / 3 < at_first < later * 3
    assert at_first > 4 * frame_bytes(LARGE.height, LARGE.width, 2)


@pytest.mark.parametrize("backend", [Backend.ONNX, Backend.OPENVINO])
def test_a_compared_file_is_planned_as_one_that_has_not_run(
    weights: Path, tmp_path: Path, backend: Backend
) -> None:
    first, second = (
        workspace_of(opened(weights, tmp_path, buckets=(LARGE,), backend=backend)) for _ in range(2)
    )
    assert second / 3 < first < second * 3
    assert first > 4 * frame_bytes(LARGE.height, LARGE.width, 2)


@pytest.mark.parametrize("backend", [Backend.AUTO, Backend.TORCH, Backend.ONNX])
def test_an_unknown_class_is_refused_before_anything_is_exported(
    weights: Path, tmp_path: Path, backend: Backend
) -> None:
    with pytest.raises(ConfigError, match=r"classes \[77\] are not among the model's: 0 "):
        opened(weights, tmp_path, backend=backend, classes=(0, 77))
    assert not [file for file in tmp_path.iterdir() if file.suffix == ".onnx"]


def test_an_unknown_class_is_refused_though_the_choice_is_known(
    weights: Path, cache: Path, speeds: dict[str, float]
) -> None:
    opened(weights, cache)
    assert speeds
    with pytest.raises(ConfigError, match=r"classes \[77\]"):
        opened(weights, cache, classes=(77,))


def test_another_circumstance_is_another_choice(
    weights: Path, cache: Path, speeds: dict[str, float]
) -> None:
    opened(weights, cache)
    threads = Loading(device="cpu", conf=0.25, iou=0.7, threads=2)
    assert not opened(weights, cache, loading=threads).choice.cached
    thresholds = Loading(device="cpu", conf=0.5, iou=0.5, threads=1)
    again = opened(weights, cache, loading=thresholds)
    assert again.choice.cached, "thresholds do not decide about speed"
    assert again.model.info.conf == 0.5


def test_a_backend_that_is_off_is_left_out_with_a_warning(
    weights: Path, cache: Path, speeds: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    never = Limits(iou=1.1, score=0.0)
    monkeypatch.setattr("pipeline.backend_files.limits_of", lambda _: never)
    found = opened(weights, cache)
    assert found.model.info.backend == "torch"
    assert len(found.warnings) == 2
    assert "onnx is left out: least IoU" in found.warnings[0]


@pytest.mark.parametrize("backend", [Backend.ONNX, Backend.OPENVINO])
def test_a_backend_asked_for_by_name_that_is_off_is_refused(
    weights: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    never = Limits(iou=1.1, score=0.0)
    monkeypatch.setattr("pipeline.backend_files.limits_of", lambda _: never)
    with pytest.raises(ConfigError, match=rf"routes\.backend = {backend.value}: .*least IoU"):
        opened(weights, cache, backend=backend)


def test_missing_libraries_leave_torch(
    weights: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    found = opened(weights, cache)
    assert found.model.info.backend == "torch"
    assert all("not installed" in warning for warning in found.warnings)
    with pytest.raises(ConfigError, match="not installed"):
        opened(weights, cache, backend=Backend.OPENVINO)


def test_a_backend_that_fails_when_it_runs_is_left_out(
    weights: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, speeds: dict[str, float]
) -> None:
    def fail(*_: object) -> torch.Tensor:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("pipeline.backend_openvino.OpenVinoRunner.run", fail)
    found = opened(weights, cache)
    assert found.model.info.backend == "onnx"
    assert "no such instruction" in found.warnings[0]


def test_a_cached_file_that_is_broken_is_no_reason_not_to_start(
    weights: Path, cache: Path, speeds: dict[str, float]
) -> None:
    speeds["onnx"] = 99.0
    opened(weights, cache)
    next(cache.glob("*.onnx")).write_bytes(b"cut short")
    found = opened(weights, cache)
    assert found.model.info.backend == "openvino"
    assert "onnx is left out" in found.warnings[0]


def test_a_choice_that_cannot_be_read_is_made_again(
    weights: Path, cache: Path, speeds: dict[str, float]
) -> None:
    opened(weights, cache)
    for choice in cache.glob("choice-*"):
        choice.write_bytes(b"{")
    assert not opened(weights, cache).choice.cached


def test_workers_that_start_together_choose_once(
    weights: Path, tmp_path: Path, speeds: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    export = backend_choice._export

    def counted(order: Order, kind: Any, file: Path) -> None:
        made.append(file)
        export(order, kind, file)

    monkeypatch.setattr(backend_choice, "_export", counted)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: opened(weights, tmp_path), range(3)))
    assert len(made) == 2
    assert [f.choice.cached for f in found].count(False) == 1
    assert {f.model.info.backend for f in found} == {"openvino"}


def test_a_cache_that_cannot_be_written_leaves_torch(weights: Path, tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("in the way")
    found = opened(weights, place)
    assert found.model.info.backend == "torch"
    assert "stays with torch: device.model_cache_dir" in found.warnings[0]
    with pytest.raises(ConfigError, match=r"device\.model_cache_dir"):
        opened(weights, place, backend=Backend.ONNX)


def test_fp16_on_a_cpu_is_half_weights_for_openvino_and_nothing_for_torch(
    weights: Path, cache: Path
) -> None:
    found = opened(weights, cache, backend=Backend.OPENVINO, precision=Precision.FP16)
    assert found.model.info.backend == "openvino-fp16"
    with pytest.raises(ConfigError, match="fp16 needs CUDA"):
        opened(weights, cache, backend=Backend.TORCH, precision=Precision.FP16)


def test_weights_that_are_none_are_refused_as_ever(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        opened(tmp_path / "nowhere.pt", tmp_path)
    (tmp_path / "broken.pt").write_bytes(b"broken")
    with pytest.raises(ConfigError, match="not a checkpoint"):
        opened(tmp_path / "broken.pt", tmp_path)


def test_measuring_takes_turns_and_spares_turned_shapes(weights: Path, cache: Path) -> None:
    order = Order(str(weights), digest_of(weights), BUCKETS, Precision.AUTO, LOADING)
    ticks = iter(range(10**6))
    _, choice = choose(order, ModelCache(cache), lambda: float(next(ticks)))
    measured = next(f.img_per_s for f in choice.figures if f.backend == "torch")
    assert measured == {"64x96×1": 1.0, "64x96×2": 2.0}
    assert choice.backend == "torch", "all the same: the first"


def test_one_figure_for_all_cases() -> None:
    assert overall({"a": 10.0, "b": 40.0}) == pytest.approx(16.0)
