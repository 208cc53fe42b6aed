"""TensorRT engines (`.engine`), on CUDA. Written from NVIDIA's documentation of TensorRT 10 and 11;
**untried**: no GPU has run it yet.

An engine belongs to the card and the TensorRT version that built it. Its file is, as Ultralytics
writes it: four bytes with the length of a JSON map (little-endian), the map, the engine.
"""

from __future__ import annotations

import json
from contextlib import suppress
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
from schemas.errors import ConfigError, FatalError

_MAX_DESCRIPTION = 64 * 1024 * 1024


def load_tensorrt(path: Path, *, device: torch.device, conf: float, iou: float) -> ExportedModel:
    """Load an engine that `frameloom export` or Ultralytics wrote.

    Args:
        device: a CUDA device that torch sees.
        conf, iou: the route's thresholds.

    Raises:
        ConfigError: TensorRT is not installed, another device, or no engine for this card and
            version.
    """
    if device.type != "cuda":
        raise ConfigError(f"model {path}: TensorRT engines need CUDA, not {device}")
    trt = tensorrt(path)
    fields, body = split_engine(path)
    info = read_info(fields[KEY], path) if KEY in fields else read_ultralytics(fields, path)
    with torch.cuda.device(device):
        engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(body)
    if engine is None:
        raise ConfigError(
            f"model {path}: TensorRT {trt.__version__} cannot load it on this card; engines "
            "belong to the card and version that built them, so export it here"
        )
    runner = TensorRtRunner(trt, engine, info, path, device)
    return ExportedModel(runner, info, conf=conf, iou=iou)


def tensorrt(path: Path) -> Any:
    """The library. Raises ConfigError without CUDA, or where it is not installed."""
    if not torch.cuda.is_available():
        raise ConfigError(
            f"model {path}: TensorRT engines need CUDA, and torch sees no such device"
        )
    try:
        import tensorrt as trt  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(
            f"model {path}: TensorRT is not installed (pip install tensorrt-cu13)"
        ) from error
    return trt


def join_engine(info_json: str, body: bytes) -> bytes:
    """The file's content."""
    described = json.dumps({KEY: info_json}).encode()
    return len(described).to_bytes(4, "little") + described + body


def split_engine(path: Path) -> tuple[dict[str, str], bytes]:
    """The described fields, as text, and the engine.

    Raises:
        ConfigError: the file cannot be read or holds no description.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"model {path}: cannot be read: {error.strerror}") from error
    length = int.from_bytes(content[:4], "little")
    described: object = None
    if 0 < length <= min(_MAX_DESCRIPTION, len(content) - 4):
        with suppress(ValueError):
            described = json.loads(content[4 : 4 + length])
    if not isinstance(described, dict):
        raise ConfigError(
            f"model {path}: not an engine with a description at its head; export it with "
            "`frameloom export --format engine`"
        )
    return {str(key): str(value) for key, value in described.items()}, content[4 + length :]


class TensorRtRunner:
    """An execution context per shape, each with the optimisation profile that admits it. Implements
    `Runner`; `run` leaves the work on the current CUDA stream."""

    def __init__(
        self, trt: Any, engine: Any, info: ExportInfo, path: Path, device: torch.device
    ) -> None:
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        inputs = [n for n in names if engine.get_tensor_mode(n) == trt.TensorIOMode.INPUT]
        outputs = [n for n in names if n not in inputs]
        if len(inputs) != 1 or not outputs:
            raise ConfigError(f"model {path}: it has {len(inputs)} inputs, one is needed")
        self._engine = engine
        self._path = path
        self._input, self._output = inputs[0], outputs[0]
        types = {trt.uint8: torch.uint8, trt.float32: torch.float32, trt.float16: torch.float16}
        self._takes = types.get(engine.get_tensor_dtype(self._input), torch.float32)
        self._gives = types.get(engine.get_tensor_dtype(self._output), torch.float32)
        check_predictions(tuple(engine.get_tensor_shape(self._output))[1], info, path)
        self._contexts: dict[tuple[int, int], Any] = {}
        self.backend = backend_name("tensorrt", info)
        self.device = device

    def prepare(self, height: int, width: int) -> None:
        for profile in range(self._engine.num_optimization_profiles):
            least, _, most = self._engine.get_tensor_profile_shape(self._input, profile)
            wanted = (height, width)
            low, high = (
                tuple(s)[1:3] if self._takes is torch.uint8 else tuple(s)[2:4]
                for s in (least, most)
            )
            if all(a <= b <= c for a, b, c in zip(low, wanted, high, strict=True)):
                context = self._engine.create_execution_context()
                if context is None:
                    raise torch.OutOfMemoryError("no memory for a TensorRT context")
                stream = torch.cuda.current_stream(self.device)
                context.set_optimization_profile_async(profile, stream.cuda_stream)
                stream.synchronize()
                self._contexts[wanted] = context
                return
        raise ConfigError(f"model {self._path}: no profile admits {height}x{width}")

    def run(self, frames: torch.Tensor) -> torch.Tensor:
        context = self._contexts[int(frames.shape[1]), int(frames.shape[2])]
        feed = frames.to(self.device, non_blocking=True)
        feed = feed.contiguous() if self._takes is torch.uint8 else planes_of(feed, self._takes)
        if not context.set_input_shape(self._input, tuple(feed.shape)):
            raise RuntimeError(f"TensorRT takes no {tuple(feed.shape)} here")
        size = tuple(context.get_tensor_shape(self._output))
        found = torch.empty(size, dtype=self._gives, device=self.device)
        context.set_tensor_address(self._input, feed.data_ptr())
        context.set_tensor_address(self._output, found.data_ptr())
        stream = torch.cuda.current_stream(self.device)
        if not context.execute_async_v3(stream.cuda_stream):
            raise FatalError("TensorRT could not start a batch")
        # The caching allocator may give the frames' memory away before the stream has read it.
        feed.record_stream(stream)
        return found.float()
