"""Checks that load native libraries: each wrong state, in this process."""

from __future__ import annotations

import builtins
import zipfile
from pathlib import Path
from typing import Any

import cv2
import pytest

from frameloom import doctor_child, doctor_models
from frameloom.doctor_finding import Finding, State
from schemas.settings import Backend, BucketSettings, DeviceSettings, RouteSettings, Settings

WEIGHTS = "bench/assets/frameloom-demo.pt"


def the_model(**route: object) -> Finding:
    known: dict[str, Any] = {"model": WEIGHTS}
    found, _ = doctor_models.models(Settings(routes=[RouteSettings(**(known | route))]))
    return found


def without(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = builtins.__import__

    def refuse(module: str, *rest: Any, **named: Any) -> Any:
        if module.partition(".")[0] == name or module == name:
            raise ImportError(f"No module named {name!r}")
        return real(module, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = doctor_child.opencv(Settings())
    assert (found.state, "decodes JPEG" in found.found) == (State.OK, True)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: None)
    (found,) = doctor_child.opencv(Settings())
    assert (found.state, "cannot decode jpg, png, webp" in found.found) == (State.PROBLEM, True)
    without(monkeypatch, "cv2")
    (found,) = doctor_child.opencv(Settings())
    assert "pip install" in found.remedy


@pytest.mark.parametrize(
    ("decoder", "state"),
    [("opencv", State.SKIPPED), ("auto", State.WARNING), ("dali", State.PROBLEM)],
)
def test_dali_that_is_not_installed(
    decoder: Any, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "nvidia")
    (found,) = doctor_child.dali(Settings(device=DeviceSettings(decoder=decoder)))
    assert found.state is state


def test_dali_that_decodes_and_dali_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nvidia.dali")
    settings = Settings(device=DeviceSettings(decoder="dali", name="cpu"))
    (found,) = doctor_child.dali(settings)
    assert found.state is State.OK, found.found

    def broken(_device: str) -> str:
        raise RuntimeError("driver too old\nmore")

    monkeypatch.setattr(doctor_child, "_decode_with_dali", broken)
    (found,) = doctor_child.dali(settings)
    assert (found.state, "driver too old" in found.found) == (State.PROBLEM, True)


def test_dali_is_not_to_blame_for_a_device_that_is_not_there() -> None:
    pytest.importorskip("nvidia.dali")
    (found,) = doctor_child.dali(Settings(device=DeviceSettings(name="cuda:99")))
    assert (found.state, "needs the device" in found.found) == (State.SKIPPED, True)


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (found,) = doctor_child.device(Settings(device=DeviceSettings(name="cuda:99")))
    assert (found.state, "device.name" in found.remedy) == (State.PROBLEM, True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (found,) = doctor_child.device(Settings())
    assert found.found.startswith("cpu, torch")
    version = tmp_path / "version"
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27\n")
    monkeypatch.setattr(doctor_child, "DRIVER", version)
    (found,) = doctor_child.device(Settings())
    assert (found.state, "580.82.07" in found.found) == (State.WARNING, True)


def test_a_model_that_can_be_served() -> None:
    found = the_model()
    assert (found.check, found.state) == ("model.default", State.OK)
    assert "5 classes" in found.found
    assert "stride 32" in found.found


def test_models_that_cannot(tmp_path: Path) -> None:
    pointer = tmp_path / "lfs.pt"
    pointer.write_text("version https://git-lfs.github.com/spec/v1")
    strange = tmp_path / "zip.pt"
    with zipfile.ZipFile(strange, "w") as file:
        file.writestr("x", "y")
    onnx = tmp_path / "m.onnx"
    onnx.write_bytes(b"onnx")
    (tmp_path / "m.tflite").write_bytes(b"x")
    cases = {
        str(tmp_path / "no.pt"): (State.PROBLEM, "no such file"),
        str(tmp_path / "yolov8n.pt"): (State.WARNING, "Ultralytics would fetch it"),
        str(pointer): (State.PROBLEM, "no checkpoint of torch"),
        str(strange): (State.PROBLEM, "not a checkpoint"),
        str(onnx): (State.PROBLEM, "m.onnx"),
        str(tmp_path / "m.tflite"): (State.PROBLEM, "its kind is not known"),
    }
    for model, (state, words) in cases.items():
        found = the_model(model=model)
        assert (found.state, words in found.found) == (state, True), found
    found = the_model(classes=[0, 5])
    assert (found.state, "classes [5]" in found.found) == (State.PROBLEM, True)


def test_buckets_that_do_not_suit_the_model() -> None:
    bucket = BucketSettings(name="odd", max_source_pixels=1, height=32, width=40, max_batch=1)
    found = the_model(buckets=[bucket])
    assert (found.state, "odd" in found.found) == (State.PROBLEM, True)


def test_a_backend_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_models.importlib.util, "find_spec", lambda _name: None)
    found = the_model(backend=Backend.ONNX)
    assert (found.state, "pip install onnxruntime" in found.remedy) == (State.PROBLEM, True)


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def judged(folder: Path) -> Finding:
        return doctor_models._cache(Settings(device=DeviceSettings(model_cache_dir=str(folder))))

    assert judged(tmp_path / "not" / "yet").state is State.OK
    (tmp_path / "file").write_text("x")
    found = judged(tmp_path / "file")
    assert (found.state, "device.model_cache_dir" in found.remedy) == (State.WARNING, True)
