"""Ultralytics checkpoints: found or fetched, read with care, and checked.

**Weights are trusted input.** An Ultralytics `.pt` is a pickle. It is loaded in Ultralytics'
restricted mode, which rebuilds known model classes only; whoever trusts a file with classes of its
own can set `ULTRALYTICS_SAFE_LOAD=false`, and then the file may run any code in this process.
Restricted or not, load only weights whose origin is known.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Ultralytics reads these when it is imported. Without them it looks up its home by DNS, and
# installs whatever package a checkpoint asks for.
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("ULTRALYTICS_SAFE_LOAD", "true")

from ultralytics.nn import tasks
from ultralytics.nn.modules.head import Detect
from ultralytics.utils import checks, downloads

from schemas.errors import ConfigError

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


_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
"""How PyTorch's files begin: since 1.6, and before."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A detection network that this worker can serve.

    Attributes:
        name: the file's stem.
        digest: SHA-256 of the file, hexadecimal.
        labels: class id → label, ids 0..classes-1.
        network: as stored: not fused, float32, eval mode, on the CPU.
    """

    name: str
    digest: str
    labels: dict[int, str]
    network: tasks.BaseModel


def read_checkpoint(path: str) -> Checkpoint:
    """Read Ultralytics detection weights (trusted input, see above).

    Args:
        path: a `.pt` file. If it is absent and its name is one that Ultralytics publishes (e.g.
            `yolov8n.pt`), Ultralytics fetches it to that place; nothing else touches the network.

    Raises:
        ConfigError: no such file, not a checkpoint, not a detection model, or a head or labels that
            this worker cannot serve.
    """
    file = _find_file(path)
    network = _read_network(file)
    labels = _check_head(network, file)
    return Checkpoint(file.stem, _digest(file), labels, network)


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
    name = _plain_name(file)
    _check_whole(file)
    try:
        network = tasks.load_checkpoint(name)[0]
    except _LOAD_ERRORS as error:
        raise ConfigError(
            f"model {file}: not a checkpoint that Ultralytics can load ({_reason(error)})"
        ) from error
    if not isinstance(network, tasks.BaseModel):
        raise ConfigError(f"model {file}: {type(network).__name__} is no YOLO network")
    return network


def _plain_name(file: Path) -> str:
    """The file's name, if Ultralytics leaves it as it is; a changed name it would go and fetch."""
    name = str(file)
    taken_for = checks.check_yolov5u_filename(file.name, verbose=False)
    if taken_for != file.name:
        raise ConfigError(
            f"model {file}: YOLOv5 is not supported, nor YOLOv3 (Ultralytics takes {taken_for} "
            "in its place); detection models of the YOLOv8 family are. If it is one, rename it"
        )
    if checks.check_yolov5u_filename(name.strip().replace("'", ""), verbose=False) != name:
        raise ConfigError(f"model {file}: Ultralytics cannot load a file of this name; rename it")
    return name


def _check_whole(file: Path) -> None:
    """Raises ConfigError for what is no PyTorch file at all (a text, a page) or cut short."""
    try:
        with file.open("rb") as stream:
            head = stream.read(len(_ZIP))
    except OSError as error:
        raise ConfigError(f"model {file}: cannot be read: {error.strerror}") from error
    if head == _ZIP:
        if not zipfile.is_zipfile(file):
            raise ConfigError(f"model {file}: not a checkpoint: it is cut short; fetch it anew")
    elif not head.startswith(_PICKLE):
        raise ConfigError(f"model {file}: not a checkpoint: it is no PyTorch weights file")


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


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _reason(error: BaseException) -> str:
    """The error's first line, with its kind where that alone says little ("KeyError: 101")."""
    said = _first_line(error)
    return said if " " in said else f"{type(error).__name__}: {said}"


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
