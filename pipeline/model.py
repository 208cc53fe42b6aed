"""Ultralytics YOLOv8 detection models through torch, on CPU and CUDA.

**Weights are trusted input.** An Ultralytics `.pt` is a pickle. It is loaded in Ultralytics'
restricted mode, which rebuilds known model classes only; whoever trusts a file with classes of its
own can set `ULTRALYTICS_SAFE_LOAD=false`, and then the file may run any code in this process.
Restricted or not, load only weights whose origin is known.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Ultralytics reads these when it is imported. Without them it looks up its home by DNS, and
# installs whatever package a checkpoint asks for.
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("ULTRALYTICS_SAFE_LOAD", "true")

import torch
from ultralytics.nn import tasks
from ultralytics.nn.modules.head import Detect
from ultralytics.utils import checks, downloads

from pipeline.bucket import Bucket
from pipeline.letterbox import PAD_VALUE
from schemas.errors import ConfigError, FatalError
from schemas.result import ModelInfo

_LOAD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    pickle.PickleError,
)
"""What unpickling a file that is no checkpoint can raise; a bug of ours would surface in tests."""


class YoloModel:
    """A YOLOv8 detection network: uint8 frames in, raw predictions out. Implements `Model`.

    Calls may come from any thread, one at a time: the head keeps the anchors of the last shape
    (batch size included) between calls, so two calls at once would mix them. A second call while
    one runs raises RuntimeError.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        *,
        info: ModelInfo,
        labels: Mapping[int, str],
        device: torch.device,
        threads: int = 0,
    ) -> None:
        """Use `load_model`, which checks what it hands over.

        Args:
            network: fused, in eval mode, float32, on `device`; returns (predictions, …).
            info, labels: what to report.
            device: where it runs.
            threads: torch's threads within one operation; 0 leaves torch's choice.
        """
        # Channels last is 1.3 to 2 times as fast on a CPU, and how Ultralytics' own `predict` runs.
        self._format = torch.channels_last if device.type == "cpu" else torch.contiguous_format
        self._network = network.to(memory_format=self._format)
        self._stride = int(_tensor(network, "stride").max())
        self._info = info
        self._labels = dict(labels)
        self._device = device
        self._threads = threads
        self._running = threading.Lock()
        self._prepared: int | None = None

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def labels(self) -> Mapping[int, str]:
        """Class id → label, ids 0..classes-1."""
        return self._labels

    @property
    def stride(self) -> int:
        """Bucket sides must be multiples of it, in pixels (32 for YOLOv8)."""
        return self._stride

    @property
    def device(self) -> torch.device:
        return self._device

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """Run every bucket's shape once alone and once at its largest batch.

        Raises:
            ConfigError: a bucket's side is not a multiple of the stride.
        """
        for bucket in buckets:
            if bucket.height % self._stride or bucket.width % self._stride:
                raise ConfigError(
                    f"bucket {bucket.name}: {bucket.width}x{bucket.height} must be multiples of "
                    f"the model's stride, {self._stride}"
                )
        largest: dict[tuple[int, int], int] = {}
        for bucket in buckets:
            shape = (bucket.height, bucket.width)
            largest[shape] = max(largest.get(shape, 1), bucket.max_batch)
        for (height, width), batch in largest.items():
            for n in sorted({1, batch}):
                self.infer(torch.full((n, height, width, 3), PAD_VALUE, dtype=torch.uint8))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        """Raw predictions of a batch.

        On CUDA the call returns before the device is done: wait for the current CUDA stream.

        Args:
            frames: uint8 (n, height, width, 3), RGB, 0..255, contiguous, on any device; height and
                width multiples of `stride`.

        Returns:
            float32 (n, 4 + classes, anchors) on `device`: box centre x, centre y, width, height in
            bucket pixels, then one score per class in 0..1.

        Raises:
            FatalError: the device failed and can no longer be used by this process.
            ValueError: frames of another type or shape (a bug).
            RuntimeError: two calls at once (a bug), or torch failed on this batch.
        """
        if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
            raise ValueError(
                f"frames must be uint8 (n, h, w, 3), not {frames.dtype} {frames.shape}"
            )
        if not self._running.acquire(blocking=False):
            raise RuntimeError("two threads run one model at once")
        try:
            self._prepare_thread()
            return self._forward(frames)
        except torch.AcceleratorError as error:
            raise FatalError(f"the device failed: {error}") from error
        finally:
            self._running.release()

    def _prepare_thread(self) -> None:
        # The thread count belongs to the calling thread (OpenMP), not to the process.
        thread = threading.get_ident()
        if thread != self._prepared:
            self._prepared = thread
            if self._threads:
                torch.set_num_threads(self._threads)

    @torch.inference_mode()
    def _forward(self, frames: torch.Tensor) -> torch.Tensor:
        planes = frames.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        planes = planes.to(torch.float32, memory_format=self._format).div_(255)
        return self._network(planes)[0]


def load_model(path: str, *, device: str, conf: float, iou: float, threads: int = 0) -> YoloModel:
    """Load Ultralytics detection weights (trusted input, see above): fused, float32, eval mode.

    Args:
        path: a `.pt` file. If it is absent and its name is one that Ultralytics publishes (e.g.
            `yolov8n.pt`), Ultralytics fetches it to that place; nothing else touches the network.
        device: `cpu`, `cuda`, `cuda:N`, or `auto` for CUDA where there is one.
        conf, iou: the route's thresholds, reported in `ModelInfo`.
        threads: torch's threads within one operation on a CPU; 0 leaves torch's choice.

    Raises:
        ConfigError: no such file, not a checkpoint, not a detection model, a head or labels that
            this worker cannot serve, or no such device.
    """
    where = _find_device(device)
    file = _find_file(path)
    network = _read_network(file)
    labels = _check_head(network, file)
    network = network.fuse(verbose=False).float().eval().to(where)
    for weights in network.parameters():
        weights.requires_grad = False
    info = ModelInfo(file.stem, _digest(file)[:12], "detect", conf, iou)
    return YoloModel(network, info=info, labels=labels, device=where, threads=threads)


def _find_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device {name!r}: one of auto, cpu, cuda, cuda:N") from error
    if device.type not in {"cpu", "cuda"}:
        raise ConfigError(f"device {name!r}: one of auto, cpu, cuda, cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def _find_file(path: str) -> Path:
    file = Path(path)
    if file.suffix != ".pt":
        raise ConfigError(f"model {path}: Ultralytics weights are .pt files")
    # Absolute, because Ultralytics deletes and fetches anew a broken file named by its bare name.
    file = file.absolute()
    if not file.exists():
        if file.name not in downloads.GITHUB_ASSETS_NAMES or not file.parent.is_dir():
            raise ConfigError(f"model {path}: no such file")
        _fetch(file)
    if not file.is_file():
        raise ConfigError(f"model {path}: not a file")
    return file


def _fetch(file: Path) -> None:
    try:
        downloads.attempt_download_asset(file)
    except (OSError, MemoryError) as error:
        raise ConfigError(
            f"model {file.name}: no such file, and fetching it from Ultralytics failed; is this "
            f"machine offline? ({_first_line(error)})"
        ) from error


def _read_network(file: Path) -> tasks.BaseModel:
    # Whoever imported Ultralytics before this module decided these, so they are set once more.
    checks.AUTOINSTALL = False  # pyright: ignore[reportPrivateImportUsage]
    trusted = os.environ.get("ULTRALYTICS_SAFE_LOAD", "true").lower() in {"0", "false", "no", "off"}
    tasks.SAFE_LOAD = not trusted  # pyright: ignore[reportPrivateImportUsage]
    try:
        network = tasks.load_checkpoint(_plain_name(file))[0]
    except _LOAD_ERRORS as error:
        raise ConfigError(
            f"model {file}: not a checkpoint that Ultralytics can load ({_first_line(error)})"
        ) from error
    if not isinstance(network, tasks.BaseModel):
        raise ConfigError(f"model {file}: {type(network).__name__} is no YOLO network")
    return network


def _plain_name(file: Path) -> str:
    """The file's name, if Ultralytics leaves it as it is; a changed name it would go and fetch."""
    name = str(file)
    if checks.check_yolov5u_filename(name.strip().replace("'", ""), verbose=False) != name:
        raise ConfigError(f"model {file}: Ultralytics cannot load a file of this name; rename it")
    return name


def _check_head(network: tasks.BaseModel, file: Path) -> dict[int, str]:
    """The labels of a network, if it is one that this worker can serve."""
    layers: Any = network.model
    head = layers[-1]
    if type(head) is not Detect:
        task = getattr(network, "task", "unknown")
        raise ConfigError(
            f"model {file}: a detection model is needed; the task of this one is {task}, "
            f"its head is {type(head).__name__}"
        )
    if head.end2end:
        raise ConfigError(f"model {file}: end-to-end heads (without NMS) are not supported")
    inputs = next(network.parameters()).shape[1]
    if inputs != 3:
        raise ConfigError(f"model {file}: it takes {inputs} colour channels, frames have 3")
    return _check_labels(getattr(network, "names", None), int(head.nc), file)


def _check_labels(names: Any, classes: int, file: Path) -> dict[int, str]:
    if classes < 1:
        raise ConfigError(f"model {file}: it has no classes, so nothing could be detected")
    pairs = names.items() if isinstance(names, Mapping) else enumerate(names or ())
    labels = {int(class_id): str(label) for class_id, label in pairs}
    missing = [class_id for class_id in range(classes) if not labels.get(class_id, "").strip()]
    if missing or len(labels) != classes:
        raise ConfigError(
            f"model {file}: {classes} classes and {len(labels)} labels"
            + (f"; classes {missing[:5]} have none" if missing else "")
        )
    return labels


def _tensor(network: torch.nn.Module, name: str) -> torch.Tensor:
    return getattr(network, name)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
