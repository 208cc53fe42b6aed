"""What an exported model file says of itself: where it came from and what it must answer."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from schemas.errors import ConfigError

KEY = "frameloom"
"""Under this name the description stands in a file's metadata, as JSON."""
DESCRIPTION_VERSION = 1


class Shape(msgspec.Struct, frozen=True):
    """A tensor shape that a file serves: `height` × `width` pixels, 1 to `max_batch` frames."""

    height: int
    width: int
    max_batch: int


class Answer(msgspec.Struct, frozen=True):
    """What torch in float32 answers for one picture: its best anchors.

    Attributes:
        anchors: their indices in the predictions, by score, best first.
        classes: their best class.
        scores: of that class, 0..1.
        boxes: x1, y1, x2, y2 in bucket pixels.
        above: so many of all the picture's anchors score above `Answers.conf`.
    """

    anchors: tuple[int, ...]
    classes: tuple[int, ...]
    scores: tuple[float, ...]
    boxes: tuple[tuple[float, float, float, float], ...]
    above: int


class Answers(msgspec.Struct, frozen=True):
    """The answers for the fixed pictures at one shape.

    Attributes:
        height, width: of the tensor, pixels.
        conf: score above which an anchor is a candidate for a detection.
        pictures: digest of the pictures.
        rows: one for each picture.
    """

    height: int
    width: int
    conf: float
    pictures: str
    rows: tuple[Answer, ...]


class ExportInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an exported file.

    Attributes:
        v: version of the description.
        name: stem of the weights file.
        source: name of the weights file.
        digest: SHA-256 of the weights, hexadecimal; of a file that somebody else exported, its own.
        labels: class id → label, ids 0..classes-1.
        stride: pixels.
        task: `detect`.
        half: float16 inside.
        dynamic: serves any height and width that are multiples of the stride; `shapes` are then
            those that it was tried with.
        shapes: that it serves.
        versions: of the libraries that wrote it.
        answers: what it must answer; empty when somebody else exported it.
    """

    v: int = DESCRIPTION_VERSION
    name: str
    source: str
    digest: str
    labels: dict[int, str]
    stride: int
    task: str = "detect"
    half: bool = False
    dynamic: bool = False
    shapes: tuple[Shape, ...] = ()
    versions: dict[str, str] = {}
    answers: tuple[Answers, ...] = ()


def write_info(info: ExportInfo) -> str:
    """The description as JSON text."""
    return msgspec.json.encode(info).decode()


def read_info(text: str | bytes, file: Path) -> ExportInfo:
    """The description from JSON text.

    Raises:
        ConfigError: it is none, it is of a later version, or it describes no detection model.
    """
    try:
        info = msgspec.json.decode(text, type=ExportInfo)
    except msgspec.DecodeError as error:
        raise ConfigError(f"model {file}: its description cannot be read ({error})") from error
    if info.v > DESCRIPTION_VERSION:
        raise ConfigError(f"model {file}: it was exported by a later version of frameloom")
    _check(info, file)
    return info


def read_ultralytics(fields: Mapping[str, str], file: Path) -> ExportInfo:
    """The description of a file that Ultralytics exported. It carries no answers and no digest of
    its weights, so its own digest stands in.

    Args:
        fields: the metadata that Ultralytics writes: `names`, `stride`, `task`, `end2end`, ...

    Raises:
        ConfigError: neither we nor Ultralytics exported it, or it is no plain detection model.
    """
    if "names" not in fields or "stride" not in fields:
        raise ConfigError(
            f"model {file}: it does not say its classes; export it with `frameloom export`"
        )
    try:
        names = ast.literal_eval(fields["names"])
        labels = {int(class_id): str(label) for class_id, label in dict(names).items()}
        stride = int(float(fields["stride"]))
    except (ValueError, SyntaxError, TypeError) as error:
        raise ConfigError(f"model {file}: its metadata cannot be read ({error})") from error
    args = fields.get("args", "")
    if fields.get("end2end", "False") == "True" or "'nms': True" in args:
        raise ConfigError(f"model {file}: exported with suppression inside; export it without")
    info = ExportInfo(
        name=file.stem,
        source=file.name,
        digest=digest_of(file),
        labels=labels,
        stride=stride,
        task=fields.get("task", "detect"),
        dynamic=True,
    )
    _check(info, file)
    return info


def library_versions() -> dict[str, str]:
    """Of the libraries that an export depends on, those that are installed."""
    names = ("torch", "ultralytics", "onnx", "onnxruntime", "openvino", "tensorrt")
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the files of a folder by name, hexadecimal.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        if path.is_file():
            with path.open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        whole = hashlib.sha256()
        for file in sorted(path.iterdir()):
            whole.update(file.name.encode())
            whole.update(file.read_bytes())
        return whole.hexdigest()
    except OSError as error:
        raise ConfigError(f"model {path}: cannot be read: {error.strerror}") from error


def check_predictions(channels: object, info: ExportInfo, file: Path) -> None:
    """Raises ConfigError unless predictions have the (n, 4 + classes, anchors) of the description.

    Args:
        channels: size of their second axis; whatever is no integer is not known before a run.
    """
    expected = 4 + len(info.labels)
    if isinstance(channels, int) and channels > 0 and channels != expected:
        raise ConfigError(
            f"model {file}: its predictions have {channels} rows where {expected} belong "
            f"(4 of the box and {len(info.labels)} classes)"
        )


def backend_name(kind: str, info: ExportInfo) -> str:
    """What results call it: the format, `-fp16` behind it for half precision."""
    return f"{kind}-fp16" if info.half else kind


def wrong_shapes(info: ExportInfo, wanted: Sequence[Shape]) -> list[Shape]:
    """Those of the wanted shapes that the file does not serve."""
    if info.dynamic:
        return []
    largest = {(shape.height, shape.width): shape.max_batch for shape in info.shapes}
    return [s for s in wanted if largest.get((s.height, s.width), 0) < s.max_batch]


def _check(info: ExportInfo, file: Path) -> None:
    if info.task != "detect":
        raise ConfigError(f"model {file}: a detection model is needed, this one's is {info.task}")
    if not info.labels or set(info.labels) != set(range(len(info.labels))):
        raise ConfigError(f"model {file}: its labels do not name every class")
    if info.stride < 1:
        raise ConfigError(f"model {file}: stride {info.stride}")
