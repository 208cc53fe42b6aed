"""What the speed of a model depends on besides the model: the names under which measurements are
kept."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from pipeline.model_cache import key_of


def card(device: str) -> str:
    """The GPU's name; empty for a device without one."""
    kind = "cuda" if device == "auto" and torch.cuda.is_available() else device
    return torch.cuda.get_device_name(kind) if kind.startswith("cuda") else ""


def driver(device: str, file: Path = Path("/proc/driver/nvidia/version")) -> str:
    """The GPU's driver, as it names itself, and torch's CUDA; empty for a device without GPU."""
    if not card(device):
        return ""
    try:
        named = file.read_text("utf-8").splitlines()[0]
    except (OSError, IndexError):
        named = ""
    return f"{named} / CUDA {torch.version.cuda}"


def processor() -> str:
    """The processor's name and abilities, hashed: exports may use what only this one has."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    return key_of({line.split(":")[0].strip(): line for line in lines if line.startswith(wanted)})
