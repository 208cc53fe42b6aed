"""The formats of exported files and their names. Imports nothing heavy: a wrong name is said at
once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from schemas.errors import ConfigError

FOLDER_END = "_openvino_model"
"""An OpenVINO export is a folder whose name ends so."""


class Format(StrEnum):
    """What can be exported."""

    ONNX = "onnx"
    OPENVINO = "openvino"
    ENGINE = "engine"


def ending(format_: Format) -> str:
    """Of the names of this format's files."""
    return FOLDER_END if format_ is Format.OPENVINO else f".{format_.value}"


def default_out(weights: str, format_: Format) -> Path:
    """Beside the weights: `yolov8n.onnx`, `yolov8n_openvino_model` or `yolov8n.engine`."""
    file = Path(weights)
    return file.with_name(file.stem + ending(format_))


def check_name(out: Path, format_: Format) -> None:
    """Raises ConfigError unless the worker takes a file of this name for this format."""
    if not out.name.endswith(ending(format_)) or out.name == ending(format_):
        raise ConfigError(f"--out {out}: names of format {format_.value} end in {ending(format_)}")
