"""OpenVINO folders (`NAME_openvino_model`, with one .xml and its .bin), on the CPU."""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path
from typing import Any

import torch
import yaml

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


def load_openvino(
    path: Path, *, device: str, conf: float, iou: float, threads: int
) -> ExportedModel:
    """Load a folder that `frameloom export` or Ultralytics wrote.

    Args:
        device: `cpu` or `auto`.
        conf, iou: the route's thresholds.
        threads: within one operation; 0 for as many as this process may use.

    Raises:
        ConfigError: OpenVINO is not installed, the folder holds no such model, or another device.
    """
    if device not in {"auto", "cpu"}:
        raise ConfigError(f"model {path}: OpenVINO runs on the CPU here, not on {device}")
    core = _core_of(_library(path))
    model = _read(core, _file_of(path), path)
    info = _info_of(model, path)
    if len(model.inputs) != 1:
        raise ConfigError(f"model {path}: it has {len(model.inputs)} inputs, one is needed")
    shape = model.outputs[0].get_partial_shape()
    rows = shape[1] if shape.rank.is_static and len(shape) == 3 else None
    check_predictions(
        rows.get_length() if rows is not None and rows.is_static else None, info, path
    )
    return ExportedModel(OpenVinoRunner(core, path, info, threads), info, conf=conf, iou=iou)


class OpenVinoRunner:
    """One compiled model per shape, of any batch size. Implements `Runner`."""

    def __init__(self, core: Any, path: Path, info: ExportInfo, threads: int) -> None:
        self._core = core
        self._path = path
        self._threads = threads
        self._float: torch.dtype | None = None
        self._requests: dict[tuple[int, int], Any] = {}
        self.backend = backend_name("openvino", info)
        self.device = torch.device("cpu")

    def prepare(self, height: int, width: int) -> None:
        self._requests[height, width] = self._compiled(height, width)

    def _compiled(self, height: int, width: int) -> Any:
        model = _read(self._core, _file_of(self._path), self._path)
        takes = model.inputs[0].get_element_type().to_string()
        planes = takes != "u8"
        self._float = torch.float32 if planes else None
        wanted = [-1, 3, height, width] if planes else [-1, height, width, 3]
        given = model.inputs[0].get_partial_shape()
        fixed = {i: int(given[i].get_length()) for i in range(4) if given[i].is_static}
        if any(wanted[i] not in (size, -1) for i, size in fixed.items()):
            raise ConfigError(
                f"model {self._path}: its input is {given}, a bucket has {height}x{width}"
            )
        model.reshape([fixed.get(i, size) for i, size in enumerate(wanted)])
        compiled = self._core.compile_model(model, "CPU", compile_options(self._threads))
        return compiled.create_infer_request()

    def run(self, frames: torch.Tensor) -> torch.Tensor:
        """See `Runner`.

        Raises:
            MemoryError: memory ran out.
            RuntimeError: anything else that the library meets.
        """
        feed = frames.cpu() if self._float is None else planes_of(frames.cpu(), self._float)
        shape = (int(frames.shape[1]), int(frames.shape[2]))
        try:
            return self._run(shape, feed.contiguous().numpy())
        except RuntimeError as error:
            # What was compiled keeps the sizes of the batch that failed, and would give the answers
            # of an earlier one from now on (2026.4): the next run compiles anew.
            self._requests.pop(shape, None)
            kind = MemoryError if is_shortage(error) else RuntimeError
            message = f"OpenVINO failed: {error}"
        raise kind(message)

    def _run(self, shape: tuple[int, int], feed: Any) -> torch.Tensor:
        request = self._requests.get(shape)
        if request is None:
            request = self._requests[shape] = self._compiled(*shape)
        # Not `infer`: where memory runs out, it returns what the run before found, without a word.
        request.start_async({0: feed}, share_inputs=True)
        request.wait()
        # Copied out of the request: the next run writes over it.
        found = torch.from_numpy(request.get_output_tensor(0).data.copy())
        if len(found) != len(feed):
            raise RuntimeError(f"{len(found)} answers for {len(feed)} frames")
        return found.float()


def compile_options(threads: int) -> dict[str, Any]:
    """One stream in float32 (the default may be bfloat16), its threads not bound to cores, so that
    the decoders get theirs."""
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads or len(os.sched_getaffinity(0)),
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }


def _library(path: Path) -> Any:
    try:
        import openvino  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(
            f"model {path}: OpenVINO is not installed (pip install 'frameloom[backends]')"
        ) from error
    return openvino


_MAKING_CORE = threading.Lock()


def _core_of(library: Any) -> Any:
    """The one core of this process, never released. With its core, OpenVINO (2026.4) frees the
    stack for signal handlers that it gave to the thread which first compiled a model, and takes it
    back from that thread only where it is the one that releases. Else the thread's next signal
    would kill the process without a word, in place of Python's handler or faulthandler's."""
    with _MAKING_CORE:
        return _make_core(library)


@functools.cache
def _make_core(library: Any) -> Any:
    return library.Core()


def _file_of(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.xml"))
    if len(files) != 1:
        raise ConfigError(f"model {path}: {len(files)} .xml files in the folder, one is needed")
    return files[0]


def _read(core: Any, file: Path, path: Path) -> Any:
    try:
        return core.read_model(str(file))
    except RuntimeError as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise ConfigError(f"model {path}: not a model that OpenVINO loads ({reason})") from error


def _info_of(model: Any, path: Path) -> ExportInfo:
    if model.has_rt_info([KEY]):
        found = model.get_rt_info([KEY])
        return read_info(str(getattr(found, "value", found)), path)
    beside = _file_of(path).parent / "metadata.yaml"
    fields: dict[str, str] = {}
    if beside.is_file():
        try:
            content = yaml.safe_load(beside.read_text("utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigError(f"model {path}: metadata.yaml cannot be read ({error})") from error
        if isinstance(content, dict):
            fields = {str(key): str(value) for key, value in content.items()}
    return read_ultralytics(fields, path)
