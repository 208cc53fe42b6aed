"""Exported files: what they carry, what is refused, and the gate before they serve."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.random_weights import write_random_yolov8
from pipeline.backend_files import Loading, judge, kind_of, load_exported
from pipeline.backend_tensorrt import join_engine, split_engine
from pipeline.backends import ModelOrder, Opened, open_model
from pipeline.bucket import Bucket
from pipeline.checkpoint import read_checkpoint
from pipeline.export import ExportOrder, export_model
from pipeline.export_format import Format, check_name, default_out
from pipeline.exported import KEY, ExportInfo, Shape, read_info, write_info
from schemas.errors import ConfigError
from schemas.settings import Backend, Precision

onnx: Any = pytest.importorskip("onnx")
openvino: Any = pytest.importorskip("openvino")
pytest.importorskip("onnxruntime")

LOADING = Loading(device="cpu", conf=0.25, iou=0.7, threads=1)
SHAPES = (Shape(64, 96, 2), Shape(96, 64, 2))
BUCKET = Bucket("wide", 100, 64, 96, 2)
FORMATS = pytest.mark.parametrize("format_", [Format.ONNX, Format.OPENVINO])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="module")
def weights(folder: Path) -> Path:
    return write_random_yolov8(folder / "narrow.pt", width=0.0625, classes=2)


@pytest.fixture(scope="module")
def export(weights: Path, folder: Path) -> Callable[..., Path]:
    """Exports once per kind; the files are shared."""

    def make(
        format_: Format,
        shapes: tuple[Shape, ...] = SHAPES,
        *,
        half: bool = False,
        dynamic: bool = False,
    ) -> Path:
        place = folder / f"{len(shapes)}-{half}-{dynamic}"
        out = place / default_out(weights.name, format_).name
        if not out.exists():
            order = ExportOrder(str(weights), format_, shapes, half=half, dynamic=dynamic)
            export_model(order, out)
        return out

    return make


def opened(path: Path, tmp: Path, **changes: Any) -> Opened:
    asked: dict[str, Any] = {
        "path": str(path), "backend": Backend.AUTO, "precision": Precision.AUTO,
        "buckets": (BUCKET,), "loading": LOADING, "cache": tmp,
    }  # fmt: skip
    return open_model(ModelOrder(**asked | changes))


def some_frames(height: int = 64, width: int = 96) -> torch.Tensor:
    return torch.randint(0, 256, (2, height, width, 3), dtype=torch.uint8)


# --- what files carry --------------------------------------------------------------------------


@FORMATS
def test_a_file_says_where_it_came_from(export: Any, weights: Path, format_: Format) -> None:
    about = load_exported(export(format_), LOADING).about
    found = read_checkpoint(str(weights))
    assert (about.name, about.source, about.digest) == ("narrow", "narrow.pt", found.digest)
    assert about.labels == {0: "class0", 1: "class1"}
    assert (about.stride, about.task, about.half, about.shapes) == (32, "detect", False, SHAPES)
    assert about.versions["torch"] == torch.__version__.partition("+")[0]
    assert [(a.height, a.width) for a in about.answers] == [(64, 96), (96, 64)]


def test_odd_labels_survive(tmp_path: Path) -> None:
    labels = {0: 'a "b" <c> & é', 1: "line\nbreak"}
    info = ExportInfo(name="n", source="n.pt", digest="0" * 64, labels=labels, stride=32)
    assert read_info(write_info(info), tmp_path).labels == labels
    core = openvino.Core()
    value = openvino.opset13.parameter([1], name="x")
    model = openvino.Model([openvino.opset13.relu(value)], [value], "m")
    model.set_rt_info(write_info(info), [KEY])
    openvino.save_model(model, str(tmp_path / "m.xml"))
    again: Any = core.read_model(str(tmp_path / "m.xml")).get_rt_info([KEY])
    assert read_info(str(getattr(again, "value", again)), tmp_path).labels == labels


@FORMATS
@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
def test_a_file_passes_its_own_gate(export: Any, format_: Format, *, half: bool) -> None:
    model = load_exported(export(format_, half=half), LOADING)
    figure = judge(model, SHAPES)
    assert figure.refused == ""
    assert figure.iou is not None
    assert figure.backend == f"{format_.value}{'-fp16' if half else ''}"


@FORMATS
def test_a_dynamic_file_serves_any_size(export: Any, format_: Format) -> None:
    model = load_exported(export(format_, SHAPES[:1], dynamic=True), LOADING)
    model.warm_up([Bucket("other", 100, 128, 160, 3)])
    assert model.infer(some_frames(96, 32)).shape == (2, 6, 12 * 4 + 6 * 2 + 3 * 1)


@FORMATS
def test_a_file_of_one_shape_serves_it_alone(export: Any, format_: Format, tmp_path: Path) -> None:
    file = export(format_, SHAPES[:1])
    assert opened(file, tmp_path).model.infer(some_frames()).shape[0] == 2
    with pytest.raises(ConfigError, match=r"96x64 at 2.*serves 64x96 at 2.*--dynamic"):
        opened(file, tmp_path, buckets=(Bucket("tall", 100, 96, 64, 2),))
    with pytest.raises(ConfigError, match=r"64x96 at 9"):
        opened(file, tmp_path, buckets=(Bucket("larger", 100, 64, 96, 9),))


@FORMATS
def test_an_export_takes_the_place_of_an_older_one(
    weights: Path, tmp_path: Path, format_: Format
) -> None:
    out = tmp_path / default_out("other.pt", format_).name
    for _ in range(2):
        export_model(ExportOrder(str(weights), format_, SHAPES[:1]), out)
        assert [path.name for path in tmp_path.iterdir()] == [out.name]


# --- the gate ----------------------------------------------------------------------------------


def test_a_file_whose_boxes_are_off_is_refused(export: Any, tmp_path: Path) -> None:
    file = tmp_path / "off.onnx"
    model = onnx.load(str(export(Format.ONNX)))
    tensor = next(t for t in model.graph.initializer if len(t.dims) == 4)
    changed = onnx.numpy_helper.to_array(tensor) * np.float32(1.5)
    tensor.CopyFrom(onnx.numpy_helper.from_array(changed, tensor.name))
    onnx.save(model, str(file))
    with pytest.raises(ConfigError, match=r"routes\.backend = onnx: .*least IoU .*limits"):
        opened(file, tmp_path, backend=Backend.ONNX)


def test_a_file_without_answers_serves_with_a_warning(export: Any, tmp_path: Path) -> None:
    file = tmp_path / "silent.onnx"
    model = onnx.load(str(export(Format.ONNX)))
    info = read_info(model.metadata_props[0].value, file)
    kept = {key: getattr(info, key) for key in info.__struct_fields__ if key != "answers"}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {KEY: write_info(ExportInfo(**kept))})
    onnx.save(model, str(file))
    found = opened(file, tmp_path)
    assert "nothing to compare" in found.warnings[0]
    assert found.choice.figures[0].iou is None


# --- files of Ultralytics' own -----------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(weights: Path, folder: Path) -> Path:
    """A file as Ultralytics' exporter writes it: float planes in, its own metadata."""
    file = folder / "theirs.onnx"
    network: Any = read_checkpoint(str(weights)).network.fuse(verbose=False).float().eval()
    network.model[-1].export = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (torch.zeros(1, 3, 64, 96),), str(file), input_names=["images"],
            output_names=["output0"], dynamic_axes={"images": {0: "batch"}}, dynamo=False,
            opset_version=18,
        )  # fmt: skip
    return described(file, file)


def described(file: Path, out: Path, **fields: str) -> Path:
    model = onnx.load(str(file))
    props = {"names": "{0: 'class0', 1: 'class1'}", "stride": "32", "task": "detect"} | fields
    onnx.helper.set_model_props(model, props)
    onnx.save(model, str(out))
    return out


def test_a_file_that_ultralytics_exported_serves(theirs: Path, export: Any, tmp_path: Path) -> None:
    found = opened(theirs, tmp_path)
    assert "nothing to compare" in found.warnings[0]
    assert found.model.labels == {0: "class0", 1: "class1"}
    frames = some_frames()
    ours = load_exported(export(Format.ONNX), LOADING)
    torch.testing.assert_close(found.model.infer(frames), ours.infer(frames), rtol=1e-4, atol=1e-2)
    with pytest.raises(ConfigError, match="96x64"):
        found.model.warm_up([Bucket("tall", 9, 96, 64, 1)])


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"task": "segment"}, "this one's is segment"),
        ({"end2end": "True"}, "suppression inside"),
        ({"args": "{'nms': True}"}, "suppression inside"),
        ({"names": "{0: 'a'}"}, r"6, 126\) where \(1, 5, 'anchors'\) belong"),
        ({"names": "{1: 'a', 2: 'b'}"}, "do not name every class"),
        ({"names": "nonsense("}, "metadata cannot be read"),
    ],
)
def test_files_that_this_worker_cannot_serve_are_refused(
    theirs: Path, tmp_path: Path, fields: dict[str, str], reason: str
) -> None:
    file = described(theirs, tmp_path / "theirs.onnx", **fields)
    with pytest.raises(ConfigError, match=reason):
        opened(file, tmp_path).model.warm_up([BUCKET])


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model", "model.tflite", "model.torchscript", "weights.pth"])
def test_a_name_of_no_kind_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"its kind is not known; \.pt"):
        opened(tmp_path / name, tmp_path)


@pytest.mark.parametrize("name", ["a.onnx", "a_openvino_model", "a.xml"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name}: no such file"):
        opened(tmp_path / name, tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x01\x12"])
def test_broken_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.onnx").write_bytes(content)
    (tmp_path / "a.xml").write_bytes(content)
    for name in ("a.onnx", "a.xml"):
        with pytest.raises(ConfigError, match=f"{name}: "):
            opened(tmp_path / name, tmp_path)
    (tmp_path / "a_openvino_model").mkdir()
    with pytest.raises(ConfigError, match=r"0 \.xml files"):
        opened(tmp_path / "a_openvino_model", tmp_path)


def test_a_file_of_another_network_is_refused(tmp_path: Path) -> None:
    values = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "g",
        [values("x", onnx.TensorProto.FLOAT, [1])], [values("y", onnx.TensorProto.FLOAT, [1])],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    model.ir_version = 10
    onnx.save(model, str(tmp_path / "relu.onnx"))
    with pytest.raises(ConfigError, match="does not say its classes"):
        opened(tmp_path / "relu.onnx", tmp_path)


def test_a_backend_for_another_kind_of_file_is_refused(export: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"routes\.backend = openvino: .*a file for onnx"):
        opened(export(Format.ONNX), tmp_path, backend=Backend.OPENVINO)
    with pytest.raises(ConfigError, match=r"routes\.precision = fp16: .*is fp32"):
        opened(export(Format.ONNX), tmp_path, precision=Precision.FP16)


@FORMATS
def test_another_device_is_refused(export: Any, format_: Format, tmp_path: Path) -> None:
    loading = Loading(device="cuda:0", conf=0.25, iou=0.7)
    with pytest.raises(ConfigError, match="on the CPU here, not on cuda:0"):
        opened(export(format_), tmp_path, loading=loading)


@pytest.mark.parametrize(
    ("format_", "library"), [(Format.ONNX, "onnxruntime"), (Format.OPENVINO, "openvino")]
)
def test_a_missing_library_is_named(
    export: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: Format, library: str
) -> None:
    file = export(format_)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ConfigError, match=r"is not installed .*frameloom\[backends\]"):
        opened(file, tmp_path)


def test_a_later_description_is_refused(tmp_path: Path) -> None:
    text = '{"v":9,"name":"n","source":"n.pt","digest":"0","labels":{"0":"a"},"stride":32}'
    with pytest.raises(ConfigError, match="later version"):
        read_info(text, tmp_path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_info('{"v":1}', tmp_path)


# --- exporting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shapes": (Shape(64, 100, 1),)}, "multiples of the model's stride, 32"),
        ({"shapes": ()}, "at least one shape"),
        ({"weights": "nowhere.pt"}, "no such file"),
    ],
)
def test_an_order_that_cannot_be_filled_is_refused(
    weights: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    asked: dict[str, Any] = {"weights": str(weights), "format": Format.ONNX, "shapes": SHAPES}
    with pytest.raises(ConfigError, match=reason):
        export_model(ExportOrder(**asked | changes), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_engines_need_cuda_before_their_library(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"narrow\.pt: TensorRT engines need CUDA") as refused:
        export_model(ExportOrder(str(weights), Format.ENGINE, SHAPES), tmp_path / "a.engine")
    assert "pip install" not in str(refused.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_engines_need_their_library(weights: Path, tmp_path: Path) -> None:
    if shutil.which("trtexec") or _has_tensorrt():
        pytest.skip("TensorRT is installed")
    with pytest.raises(ConfigError, match="TensorRT is not installed"):
        export_model(ExportOrder(str(weights), Format.ENGINE, SHAPES), tmp_path / "a.engine")


def _has_tensorrt() -> bool:
    return "tensorrt" in sys.modules


@pytest.mark.parametrize(
    ("name", "format_"),
    [
        ("a.pt", Format.ONNX),
        ("a", Format.OPENVINO),
        ("a.onnx", Format.ENGINE),
        (".onnx", Format.ONNX),
    ],
)
def test_names_that_no_worker_takes_are_refused(name: str, format_: Format) -> None:
    with pytest.raises(ConfigError, match="names of format"):
        check_name(Path(name), format_)


@pytest.mark.parametrize("format_", list(Format))
def test_default_names_are_those_that_workers_take(format_: Format) -> None:
    out = default_out("models/yolov8n.pt", format_)
    assert out.parent == Path("models")
    check_name(out, format_)
    kind_of(str(out))


def test_an_engine_is_described_at_its_head(tmp_path: Path) -> None:
    file = tmp_path / "a.engine"
    file.write_bytes(join_engine("{}", b"\x00body"))
    assert split_engine(file) == ({KEY: "{}"}, b"\x00body")
    for broken in (b"", b"\x01", b"\xff\xff\xff\x7fx", b"\x02\x00\x00\x00[]", b"\x03\0\0\0x{}"):
        file.write_bytes(broken)
        with pytest.raises(ConfigError, match="not an engine with a description"):
            split_engine(file)
