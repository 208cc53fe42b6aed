"""Amounts as people write them: `500k`, `1.5s`."""

from __future__ import annotations

import re

from schemas.errors import ConfigError

_AMOUNT = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z/]*)$")
_BYTES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3}


def bytes_per_s(text: str, option: str) -> float:
    """`800000`, `800k`, `2MB`, `1.5MiB/s`: bytes per second, more than 0.

    Raises:
        ConfigError: anything else.
    """
    found = _AMOUNT.match(text)
    unit = found[2].lower().removesuffix("/s").removesuffix("b") if found else ""
    if not found or unit not in _BYTES or float(found[1]) <= 0:
        raise ConfigError(
            f"{option}: {text!r} is no amount of bytes per second, such as 500k or 2MB"
        )
    return float(found[1]) * _BYTES[unit]


def seconds(text: str, option: str, *, least: float, most: float) -> float:
    """`1`, `1.5s`, `500ms`: seconds within the bounds.

    Raises:
        ConfigError: anything else.
    """
    found = _AMOUNT.match(text)
    if not found or found[2].lower() not in _SECONDS:
        raise ConfigError(f"{option}: {text!r} is no time, such as 1s or 500ms")
    value = float(found[1]) * _SECONDS[found[2].lower()]
    if not least <= value <= most:
        raise ConfigError(f"{option}: {text} is not within {least:g} to {most:g} seconds")
    return value
