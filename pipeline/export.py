"""Ultralytics weights → files for ONNX Runtime, OpenVINO and TensorRT.

Our own code around `torch.onnx.export`: Ultralytics' exporter installs what it misses, and its
files carry neither the digest of the weights nor what they must answer. The exported network takes
frames as decoders leave them, uint8 (n, height, width, 3), so that preprocessing is part of what
the library optimises; its head decodes boxes in float32.
"""

from __future__ import annotations

import copy
import importlib.util
import os
import shutil
import tempfile
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ultralytics.nn.modules import C2f

from pipeline.backend_tensorrt import join_engine, tensorrt
from pipeline.checkpoint import Checkpoint, read_checkpoint
from pipeline.export_format import FOLDER_END, Format, check_name
from pipeline.exported import KEY, ExportInfo, Shape, library_versions, write_info
from pipeline.half import to_half
from pipeline.model import YoloModel
from pipeline.parity import answers_of, reference_shapes
from schemas.errors import ConfigError
from schemas.result import ModelInfo

_OPSET = 18
_INPUT, _OUTPUT = "frames", "predictions"


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What to export, and as what.

    Attributes:
        weights: a `.pt` file (see `read_checkpoint`).
        format: of the file.
        shapes: to serve, at least one; sides are multiples of the model's stride.
        half: float16 inside (OpenVINO: float16 weights).
        dynamic: serve any height and width that are multiples of the stride. Not for engines.
        device: where an engine is built, a CUDA device.
    """

    weights: str
    format: Format
    shapes: tuple[Shape, ...]
    half: bool = False
    dynamic: bool = False
    device: str = "cuda"


class Exportable(torch.nn.Module):
    """A network that takes frames: uint8 (n, height, width, 3), RGB."""

    def __init__(self, network: torch.nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self._network = network
        self._dtype = dtype

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        # TensorRT takes uint8 only if the cast comes first.
        planes = frames.to(self._dtype).permute(0, 3, 1, 2)
        return self._network(planes / 255)


def check_libraries(format_: Format, weights: str) -> None:
    """Raises ConfigError naming what is not installed, or CUDA where an engine for `weights` needs
    it. Nothing is ever installed for you."""
    if format_ is Format.ENGINE:
        tensorrt(Path(weights))
    needed = {Format.ONNX: ["onnx"], Format.OPENVINO: ["onnx", "openvino"], Format.ENGINE: ["onnx"]}
    missing = [name for name in needed[format_] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"format {format_.value}: {', '.join(missing)} not installed "
            "(pip install 'frameloom[backends]')"
        )


def export_model(order: ExportOrder, out: Path) -> ExportInfo:
    """Write the file (or folder), whole or not at all, in place of an older one.

    Raises:
        ConfigError: the weights, a shape, the name, a library or the place cannot be used.
    """
    check_name(out, order.format)
    check_libraries(order.format, order.weights)
    found = read_checkpoint(order.weights)
    info = _describe(order, found)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".export-") as folder:
            made = Path(folder) / out.name
            _write(order, found, info, made)
            _put_in_place(made, out)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error.strerror}") from error
    return info


def _describe(order: ExportOrder, found: Checkpoint) -> ExportInfo:
    stride: Any = found.network.stride
    step = int(stride.max())
    for shape in order.shapes:
        if shape.height % step or shape.width % step or shape.max_batch < 1:
            raise ConfigError(
                f"shape {shape.height}x{shape.width}: sides must be multiples of the model's "
                f"stride, {step}"
            )
    if not order.shapes:
        raise ConfigError("an export needs at least one shape")
    if order.dynamic and order.format is Format.ENGINE:
        raise ConfigError("--dynamic: an engine serves the shapes that it is built for")
    network = copy.deepcopy(found.network).fuse(verbose=False).float().eval()
    reference = YoloModel(
        network,
        info=ModelInfo(found.name, found.digest[:12], "detect", 0.0, 0.0),
        labels=found.labels,
        device=torch.device("cpu"),
    )
    return ExportInfo(
        name=found.name,
        source=Path(order.weights).name,
        digest=found.digest,
        labels=found.labels,
        stride=step,
        half=order.half,
        dynamic=order.dynamic,
        shapes=order.shapes,
        versions=library_versions(),
        answers=answers_of(reference, reference_shapes(order.shapes)),
    )


def _write(order: ExportOrder, found: Checkpoint, info: ExportInfo, made: Path) -> None:
    if order.format is Format.ONNX:
        _write_onnx(order, found, info, made)
        return
    onnx_file = made.with_name("stage.onnx")
    _write_onnx(order, found, info, onnx_file)
    if order.format is Format.OPENVINO:
        _write_openvino(onnx_file, info, made)
    else:
        _write_engine(order, onnx_file, info, made)


def _write_onnx(order: ExportOrder, found: Checkpoint, info: ExportInfo, made: Path) -> None:
    import onnx  # noqa: PLC0415 - an extra

    # OpenVINO keeps its own half: weights are stored in float16, and it computes in float32.
    half = order.half and order.format is not Format.OPENVINO
    network = found.network.fuse(verbose=False).float().eval()
    for weights in network.parameters():
        weights.requires_grad = False
    if half:
        to_half(network)
    fixed = len(order.shapes) == 1 and not order.dynamic
    _for_export(network, dynamic=not fixed)
    axes = {_INPUT: {0: "batch"}, _OUTPUT: {0: "batch"}}
    if not fixed:
        axes[_INPUT] |= {1: "height", 2: "width"}
        axes[_OUTPUT] |= {2: "anchors"}
    first = order.shapes[0]
    # Two frames, so that no axis of length one is taken for a constant.
    sample = torch.zeros((2, first.height, first.width, 3), dtype=torch.uint8)
    try:
        with _quiet():
            torch.onnx.export(
                Exportable(network, torch.float16 if half else torch.float32),
                (sample,),
                str(made),
                opset_version=_OPSET,
                input_names=[_INPUT],
                output_names=[_OUTPUT],
                dynamic_axes=axes,
                dynamo=False,  # the other exporter needs a further package
            )
    except OSError:
        raise
    except Exception as error:  # tracing runs the network's own code, which may raise anything
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"model {order.weights}: cannot be exported ({reason})") from error
    model = onnx.load(str(made))
    onnx.checker.check_model(model)
    onnx.helper.set_model_props(model, {KEY: write_info(info)})
    onnx.save(model, str(made))


def _for_export(network: Any, *, dynamic: bool) -> None:
    head = network.model[-1]
    head.export, head.format, head.dynamic = True, "onnx", dynamic
    for module in network.modules():
        if isinstance(module, C2f):
            module.forward = module.forward_split  # one Split node where chunks would be slices


@contextmanager
def _quiet() -> Generator[None]:
    """Tracing warns of every shape that Python looks at; what comes of it is compared with torch
    before it serves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _write_openvino(onnx_file: Path, info: ExportInfo, made: Path) -> None:
    import openvino  # noqa: PLC0415 - an extra

    # `Core.read_model` rather than `convert_model`: the latter reports its use over the network.
    model: Any = openvino.Core().read_model(str(onnx_file))
    model.set_rt_info(write_info(info), [KEY])
    made.mkdir()
    openvino.save_model(model, str(made / f"{info.name}.xml"), compress_to_fp16=info.half)


def _write_engine(order: ExportOrder, onnx_file: Path, info: ExportInfo, made: Path) -> None:
    """Untried: no GPU has run it yet."""
    trt = tensorrt(made)
    logger = trt.Logger(trt.Logger.WARNING)
    with torch.cuda.device(torch.device(order.device)):
        builder = trt.Builder(logger)
        # Types are the graph's own: half precision is in it, and nothing else is narrowed.
        strong = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        network = builder.create_network(0 if strong is None else 1 << int(strong))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(onnx_file)):
            reasons = "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
            raise ConfigError(f"model {order.weights}: TensorRT cannot read it ({reasons})")
        config = builder.create_builder_config()
        for shape in order.shapes:
            config.add_optimization_profile(_profile(builder, shape))
        body = builder.build_serialized_network(network, config)
    if body is None:
        raise ConfigError(f"model {order.weights}: TensorRT built no engine; its log says why")
    made.write_bytes(join_engine(write_info(info), bytes(body)))


def _profile(builder: Any, shape: Shape) -> Any:
    """Batches from 1 to the bucket's largest, which is the one to optimise for."""
    profile = builder.create_optimization_profile()
    least, most = ((n, shape.height, shape.width, 3) for n in (1, shape.max_batch))
    profile.set_shape(_INPUT, min=least, opt=most, max=most)
    return profile


def _put_in_place(made: Path, out: Path) -> None:
    if out.is_dir():
        if not out.name.endswith(FOLDER_END):
            raise ConfigError(f"{out}: is a folder")
        aside = Path(tempfile.mkdtemp(dir=out.parent, prefix=".replaced-"))
        os.replace(out, aside / out.name)  # noqa: PTH105 (reads like the next)
        os.replace(made, out)  # noqa: PTH105 (reads like the one before)
        shutil.rmtree(aside, ignore_errors=True)
        return
    made.replace(out)


def shapes_text(shapes: Sequence[Shape]) -> str:
    """For people: `384x640 (1 to 4), 640x384 (1 to 4)`."""
    return ", ".join(f"{s.height}x{s.width} (1 to {s.max_batch})" for s in shapes)
