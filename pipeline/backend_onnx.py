"""ONNX files by ONNX Runtime, on the CPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from pipeline.backend_model import ExportedModel, planes_of
from pipeline.exported import (
    KEY,
    ExportInfo,
    backend_name,
    check_predictions,
    read_info,
    read_ultralytics,
)
from pipeline.shortage import is_shortage
from schemas.errors import ConfigError

_FLOATS = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16}


def load_onnx(path: Path, *, device: str, conf: float, iou: float, threads: int) -> ExportedModel:
    """Load an ONNX file that `frameloom export` or Ultralytics wrote.

    Args:
        device: `cpu` or `auto`.
        conf, iou: the route's thresholds.
        threads: within one operation; 0 for as many as this process may use.

    Raises:
        ConfigError: ONNX Runtime is not installed, the file is no such model, or another device.
    """
    if device not in {"auto", "cpu"}:
        raise ConfigError(f"model {path}: ONNX Runtime runs on the CPU here, not on {device}")
    runtime = _library(path)
    options = session_options(runtime, threads)
    first = _session(runtime, path, options)
    fields = dict(first.get_modelmeta().custom_metadata_map)
    info = read_info(fields[KEY], path) if KEY in fields else read_ultralytics(fields, path)
    inputs, outputs = first.get_inputs(), first.get_outputs()
    if len(inputs) != 1:
        raise ConfigError(f"model {path}: it has {len(inputs)} inputs, one is needed")
    check_predictions(outputs[0].shape[1] if len(outputs[0].shape) == 3 else 0, info, path)
    return ExportedModel(OnnxRunner(runtime, path, first, info, threads), info, conf=conf, iou=iou)


def session_options(runtime: Any, threads: int) -> Any:
    """Threads that leave the decoders their share: one pool, whose idle threads sleep."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


class OnnxRunner:
    """A session per shape: with height and width known, the anchors become constants.

    Implements `Runner`. Input is our uint8 (n, h, w, 3), or Ultralytics' float (n, 3, h, w).
    """

    def __init__(
        self, runtime: Any, path: Path, first: Any, info: ExportInfo, threads: int
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._threads = threads
        self._input = first.get_inputs()[0]
        self._outputs = [first.get_outputs()[0].name]
        self._float = _FLOATS.get(self._input.type)
        self._sessions: dict[tuple[int, int], Any] = {}
        self.backend = backend_name("onnx", info)
        self.device = torch.device("cpu")

    def prepare(self, height: int, width: int) -> None:
        options = session_options(self._runtime, self._threads)
        axes = self._input.shape[2:4] if self._float else self._input.shape[1:3]
        for axis, size in zip(axes, (height, width), strict=True):
            if isinstance(axis, str):
                options.add_free_dimension_override_by_name(axis, size)
            elif axis != size:
                raise ConfigError(
                    f"model {self._path}: it takes {axes[0]}x{axes[1]} pixels, "
                    f"a bucket has {height}x{width}"
                )
        self._sessions[height, width] = _session(self._runtime, self._path, options)

    def run(self, frames: torch.Tensor) -> torch.Tensor:
        feed = frames.cpu() if self._float is None else planes_of(frames.cpu(), self._float)
        session = self._sessions[int(frames.shape[1]), int(frames.shape[2])]
        try:
            found = session.run(self._outputs, {self._input.name: feed.contiguous().numpy()})[0]
        except _errors(self._runtime) as error:
            kind = MemoryError if is_shortage(error) else RuntimeError
            raise kind(f"ONNX Runtime failed: {error}") from error
        return torch.from_numpy(found).float()


def _library(path: Path) -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(
            f"model {path}: ONNX Runtime is not installed (pip install 'frameloom[backends]')"
        ) from error
    return onnxruntime


def _session(runtime: Any, path: Path, options: Any) -> Any:
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except _errors(runtime) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"model {path}: not a model that ONNX Runtime loads ({reason})"
        ) from error


def _errors(runtime: Any) -> tuple[type[Exception], ...]:
    """What the library raises; its errors have no base of their own."""
    known = runtime.capi.onnxruntime_pybind11_state
    names = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile",
             "NotImplemented", "RuntimeException", "EPFail", "EngineError")  # fmt: skip
    return tuple(getattr(known, name) for name in names if hasattr(known, name))
