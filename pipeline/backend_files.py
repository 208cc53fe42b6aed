"""Exported files: their kind by name, their loader, and the gate that they pass before serving."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from pipeline.backend_model import ExportedModel
from pipeline.backend_onnx import load_onnx
from pipeline.backend_openvino import load_openvino
from pipeline.backend_tensorrt import load_tensorrt
from pipeline.export_format import FOLDER_END
from pipeline.exported import Shape
from pipeline.model_cache import Figure
from pipeline.parity import Parity, comparable, compare, limits_of
from pipeline.ports import Model
from pipeline.torch_device import find_device
from schemas.errors import ConfigError


class Kind(StrEnum):
    """What a route's `model` may name. The values are those of `routes.backend`."""

    TORCH = "torch"
    """Weights, `.pt`."""
    ONNX = "onnx"
    """`.onnx`."""
    OPENVINO = "openvino"
    """A folder `…_openvino_model`, or the `.xml` in it."""
    TENSORRT = "tensorrt"
    """`.engine`."""


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """How to load a route's model.

    Attributes:
        device: as in `device.name`.
        conf, iou: the route's thresholds.
        threads: within one operation on a CPU; 0 lets the library choose.
    """

    device: str
    conf: float
    iou: float
    threads: int = 0


_ENDINGS = {
    ".pt": Kind.TORCH, ".onnx": Kind.ONNX, ".xml": Kind.OPENVINO, ".engine": Kind.TENSORRT
}  # fmt: skip


def kind_of(path: str) -> Kind:
    """By the name alone.

    Raises:
        ConfigError: a name of no kind.
    """
    if path.rstrip("/").endswith(FOLDER_END):
        return Kind.OPENVINO
    kind = _ENDINGS.get(Path(path).suffix)
    if kind is None:
        raise ConfigError(
            f"model {path}: its kind is not known; .pt (weights), .onnx, a folder "
            f"NAME{FOLDER_END}, or .engine"
        )
    return kind


def load_exported(path: Path, loading: Loading) -> ExportedModel:
    """Load a file that is not `.pt`.

    Raises:
        ConfigError: there is none, its library is missing, or it cannot be loaded on this device.
    """
    kind = kind_of(str(path))
    if not path.exists():
        raise ConfigError(f"model {path}: no such file")
    if kind is Kind.TENSORRT:
        return load_tensorrt(
            path, device=find_device(loading.device), conf=loading.conf, iou=loading.iou
        )
    load = load_onnx if kind is Kind.ONNX else load_openvino
    return load(
        path,
        device=loading.device,
        conf=loading.conf,
        iou=loading.iou,
        threads=loading.threads,
    )


def judge(model: ExportedModel, shapes: tuple[Shape, ...]) -> Figure:
    """Compare a loaded file with the answers that it carries, at those shapes of it that `shapes`
    holds (at all, where there are none)."""
    expected = model.about.answers
    wanted = {(shape.height, shape.width) for shape in shapes}
    served = tuple(a for a in expected if (a.height, a.width) in wanted) or expected
    if not comparable(served):
        return Figure(backend=model.info.backend)
    largest = {(s.height, s.width): s.max_batch for s in model.about.shapes}
    batch = min(largest.get((a.height, a.width), 1) for a in served)
    parity = compare(model, served, limits_of(model.info.backend), batch)
    return figure_of(model, parity)


def figure_of(model: Model, parity: Parity) -> Figure:
    """A comparison as it is kept, with what is to be said against the backend."""
    limits = limits_of(model.info.backend)
    refused = (
        ""
        if parity.within(limits)
        else (f"{parity}; its limits are IoU {limits.iou:g} and score {limits.score:g}")
    )
    return Figure(backend=model.info.backend, iou=parity.iou, score=parity.score, refused=refused)
