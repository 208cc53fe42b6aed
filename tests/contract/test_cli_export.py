"""`frameloom export`: the file, what is said of it, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.random_weights import write_random_yolov8
from frameloom.cli import main
from pipeline.backend_files import Loading, load_exported

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    return write_random_yolov8(folder / "narrow.pt", width=0.0625, classes=2)


def test_a_file_lies_beside_its_weights_and_agrees_with_torch(
    weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = ["--shape", "64x96", "--shape", "96x64", "--max-batch", "3"]
    assert main(["export", str(weights), "--format", "openvino", *shapes, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["file"] == str(weights.with_name("narrow_openvino_model"))
    assert (said["backend"], said["model"], said["refused"]) == ("openvino", "narrow", "")
    assert said["iou"] >= 0.99
    assert said["score"] <= 0.01
    about = load_exported(Path(said["file"]), Loading(device="cpu", conf=0.25, iou=0.7)).about
    assert [(s.height, s.width, s.max_batch) for s in about.shapes] == [(64, 96, 3), (96, 64, 3)]


def test_shapes_are_those_of_the_settings(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "routes:\n  - buckets:\n"
        "      - {name: a, max_source_pixels: 9, height: 64, width: 96, max_batch: 2}\n"
        "      - {name: b, max_source_pixels: 99, height: 64, width: 96, max_batch: 5}\n"
    )
    out = tmp_path / "new" / "m.onnx"
    asked = ["export", str(weights), "-f", "onnx", "--config", str(config), "--out", str(out)]
    assert main(asked) == 0
    assert "64x96 up to 5" in capsys.readouterr().out
    assert out.is_file()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--format", "onnx", "--shape", "64"], "expected HEIGHTxWIDTH"),
        (["--format", "onnx", "--shape", "64x100"], "multiples of the model's stride"),
        (["--format", "onnx", "--out", "a.xml"], "end in .onnx"),
        (["--format", "engine", "--dynamic"], "an engine serves the shapes"),
    ],
)
def test_what_cannot_be_made_is_said(
    weights: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    assert main(["export", str(weights), *arguments]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


def test_other_formats_are_a_wrong_usage(weights: Path) -> None:
    assert main(["export", str(weights), "--format", "tflite"]) == 2
    assert main(["export", str(weights)]) == 2
