"""Amounts as people write them."""

from __future__ import annotations

import pytest

from frameloom.quantity import bytes_per_s, seconds
from schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [("800000", 8e5), ("500k", 5e5), ("2MB", 2e6), ("1.5MiB/s", 1_572_864.0), ("3 kB/s", 3e3)],
)
def test_bytes_per_second(text: str, value: float) -> None:
    assert bytes_per_s(text, "--rate") == value


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "5x", "1e6"])
def test_no_bytes_per_second(text: str) -> None:
    with pytest.raises(ConfigError, match="--rate"):
        bytes_per_s(text, "--rate")


@pytest.mark.parametrize(("text", "value"), [("1", 1.0), ("1.5s", 1.5), ("500ms", 0.5)])
def test_seconds(text: str, value: float) -> None:
    assert seconds(text, "--segment", least=0.1, most=30.0) == value


@pytest.mark.parametrize("text", ["", "soon", "1h", "31s", "50ms"])
def test_no_seconds(text: str) -> None:
    with pytest.raises(ConfigError, match="--segment"):
        seconds(text, "--segment", least=0.1, most=30.0)
