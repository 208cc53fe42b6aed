"""Every backend is the same model: the contract, run against torch, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.random_weights import write_random_yolov8
from pipeline.backend_files import Loading
from pipeline.backends import ModelOrder, Opened, open_model
from pipeline.bucket import Bucket
from pipeline.ports import Model
from schemas.errors import ConfigError
from schemas.settings import Backend, Precision
from tests.builders_models import NO_FRAMES, some_frames

CONF, IOU = 0.25, 0.7
LOADING = Loading(device="cpu", conf=CONF, iou=IOU, threads=1)
BUCKETS = (Bucket("wide", 100, 64, 96, 5), Bucket("tall", 100, 96, 64, 3))
WAIT_S = 180.0

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")


def opened(
    path: Path,
    backend: Backend,
    cache: Path,
    *,
    buckets: tuple[Bucket, ...] = BUCKETS,
    precision: Precision = Precision.AUTO,
) -> Opened:
    return open_model(ModelOrder(str(path), backend, precision, buckets, LOADING, cache))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backends")


@pytest.fixture(scope="module")
def weights(folder: Path) -> Path:
    return write_random_yolov8(folder / "narrow.pt", width=0.125, classes=3)


@pytest.fixture(scope="module")
def reference(weights: Path, folder: Path) -> Model:
    return opened(weights, Backend.TORCH, folder / "cache").model


@pytest.fixture(scope="module", params=[Backend.TORCH, Backend.ONNX, Backend.OPENVINO])
def backend(request: pytest.FixtureRequest) -> Backend:
    return request.param


@pytest.fixture(scope="module")
def model(weights: Path, folder: Path, backend: Backend) -> Model:
    return opened(weights, backend, folder / "cache").model


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_it_says_what_it_is(model: Model, weights: Path, backend: Backend) -> None:
    assert model.info.name == "narrow"
    assert model.info.version == hashlib.sha256(weights.read_bytes()).hexdigest()[:12]
    assert (model.info.task, model.info.conf, model.info.iou) == ("detect", CONF, IOU)
    assert model.info.backend == backend.value
    assert model.labels == {0: "class0", 1: "class1", 2: "class2"}
    assert model.stride == 32
    assert model.device == torch.device("cpu")


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("shape", [(64, 96), (96, 64)], ids=["wide", "tall"])
def test_predictions_are_those_of_torch(
    model: Model, reference: Model, n: int, shape: tuple[int, int]
) -> None:
    frames = some_frames(n, *shape)
    raw, expected = model.infer(frames), reference.infer(frames)
    assert raw.dtype == torch.float32
    assert raw.shape == (n, 4 + 3, 12 * 8 + 6 * 4 + 3 * 2)
    torch.testing.assert_close(raw[:, :4], expected[:, :4], rtol=0.0, atol=0.05)
    torch.testing.assert_close(raw[:, 4:], expected[:, 4:], rtol=0.0, atol=1e-3)


def test_a_row_does_not_depend_on_its_batch(model: Model) -> None:
    frames = some_frames(5)
    alone = torch.cat([model.infer(frames[i : i + 1]) for i in range(5)])
    model.infer(some_frames(3, 96, 64))
    together = model.infer(frames)
    torch.testing.assert_close(together[:, :4], alone[:, :4], rtol=0.0, atol=0.2)
    torch.testing.assert_close(together[:, 4:], alone[:, 4:], rtol=0.0, atol=1e-3)


def test_predictions_are_the_callers_to_keep(model: Model) -> None:
    first = model.infer(some_frames(2))
    kept = first.clone()
    model.infer(255 - some_frames(2))
    assert torch.equal(first, kept)


def test_frames_are_left_as_they_are(model: Model) -> None:
    frames = some_frames(2)
    before = frames.clone()
    model.infer(frames)
    assert torch.equal(frames, before)


@pytest.mark.parametrize("frames", NO_FRAMES.values(), ids=NO_FRAMES)
def test_frames_of_another_kind_are_a_bug(model: Model, frames: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="frames must be uint8"):
        model.infer(frames)


def test_any_thread_may_call(model: Model) -> None:
    frames, found = some_frames(1), list[torch.Tensor]()
    thread = threading.Thread(target=lambda: found.append(model.infer(frames)))
    thread.start()
    thread.join(WAIT_S)
    torch.testing.assert_close(found[0], model.infer(frames))


def test_warm_up_takes_the_buckets_and_refuses_one_between_strides(model: Model) -> None:
    model.warm_up(BUCKETS)
    with pytest.raises(ConfigError, match=r"odd.*32"):
        model.warm_up([Bucket("odd", 100, 64, 100, 1)])


def test_a_bucket_between_strides_is_refused_before_anything_is_exported(
    weights: Path, backend: Backend, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"100.*32"):
        opened(weights, backend, tmp_path, buckets=(Bucket("odd", 100, 64, 100, 1),))
    assert not list(tmp_path.glob("*.onnx"))


def test_a_second_call_while_one_runs_is_refused(
    weights: Path, folder: Path, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = opened(weights, backend, folder / "cache").model
    entered, leave = threading.Event(), threading.Event()

    def hold(*_: object) -> torch.Tensor:
        entered.set()
        assert leave.wait(WAIT_S)
        return torch.zeros(1)

    if backend is Backend.TORCH:
        monkeypatch.setattr(model, "forward", hold)
    else:
        monkeypatch.setattr(model._runner, "run", hold)
    thread = threading.Thread(target=lambda: model.infer(some_frames(1)))
    thread.start()
    try:
        assert entered.wait(WAIT_S)
        with pytest.raises(RuntimeError, match="two threads"):
            model.infer(some_frames(1))
    finally:
        leave.set()
        thread.join(WAIT_S)
