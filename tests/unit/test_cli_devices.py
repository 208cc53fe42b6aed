"""`frameloom worker --devices` as far as it goes without a broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from frameloom.cli import main
from frameloom.fleet import count_cuda
from schemas.errors import ConfigError
from workers.seat import ALONE, take_seat


def said(path: Path, text: str, code: int = 0) -> str:
    """An interpreter that says this, whatever it is asked."""
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--devices", "gpu"], "'gpu' is no device"),
        (["--devices", "cpu,"], "'' is no device"),
        (["--seat-listener", "999"], "--seat-listener 999"),
    ],
)
def test_what_cannot_be_ends_with_2_and_is_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_device_that_is_not_there_is_named_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", said(tmp_path / "python", "devices 2"))
    assert main(["worker", "--devices", "0,4"]) == 2
    assert "no cuda:4; this machine has cuda:0, cuda:1" in capsys.readouterr().err


def test_devices_are_counted_whatever_else_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", said(tmp_path / "python", "a warning\ndevices 3"))
    assert count_cuda() == 3


@pytest.mark.parametrize(("text", "code"), [("no such thing", 0), ("devices 1", 1)])
def test_a_count_that_fails_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int
) -> None:
    monkeypatch.setattr(sys, "executable", said(tmp_path / "python", text, code))
    with pytest.raises(ConfigError, match="cannot count the CUDA devices"):
        count_cuda()


def test_a_worker_by_itself_has_no_seat() -> None:
    assert take_seat(None, None) == ALONE
    assert take_seat("cpu:0", None).device == "cpu:0"
