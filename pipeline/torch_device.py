"""The torch device of a setting."""

from __future__ import annotations

import torch

from schemas.errors import ConfigError


def find_device(name: str) -> torch.device:
    """The device of a setting: `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        ConfigError: another name, or a device that torch does not see.
    """
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
