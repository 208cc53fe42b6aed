"""`frameloom bench ...`: options reach the benches, and their exit codes the shell."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.decode import FORMATS
from frameloom.cli import app
from frameloom.cli import main as frameloom
from frameloom.cli_bench import PictureFormat

RUNNER = CliRunner()


def called(monkeypatch: pytest.MonkeyPatch, name: str, code: int = 0) -> list[str]:
    arguments: list[str] = []

    def main(given: list[str]) -> int:
        arguments.extend(given)
        return code

    monkeypatch.setattr(importlib.import_module(f"bench.{name}"), "main", main)
    return arguments


@pytest.mark.parametrize("name", ["ceiling", "overhead", "ingest", "peers"])
def test_benches_on_kafka_use_the_broker_that_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = called(monkeypatch, name)
    file = tmp_path / "f.json"
    command = ["bench", name, "--bootstrap", "host:1", "--frames", "16", "--json", str(file)]
    assert RUNNER.invoke(app, command).exit_code == 0
    assert arguments[arguments.index("--bootstrap") + 1] == "host:1"
    assert arguments[arguments.index("--frames") + 1] == "16"
    assert arguments[-2:] == ["--json", str(file)]


def test_a_missed_goal_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = called(monkeypatch, "overlap", code=1)
    assert RUNNER.invoke(app, ["bench", "overlap", "--scripted-only"]).exit_code == 1
    assert "--scripted-only" in arguments


def test_sizes_and_formats_may_be_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes = called(monkeypatch, "overhead")
    command = ["bench", "overhead", "--size", "20", "--size", "100", "--bootstrap", "h:1"]
    assert RUNNER.invoke(app, command).exit_code == 0
    at = sizes.index("--sizes")
    assert sizes[at + 1 : at + 3] == ["20", "100"]
    formats = called(monkeypatch, "decode")
    command = ["bench", "decode", "--format", "png", "--plot", str(tmp_path / "p.png")]
    assert RUNNER.invoke(app, command).exit_code == 0
    assert formats[-4:] == ["--formats", "png", "--plot", str(tmp_path / "p.png")]


def test_backends_get_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = called(monkeypatch, "backends")
    assert RUNNER.invoke(app, ["bench", "backends", "--out", "x"]).exit_code == 0
    assert arguments[-2:] == ["--out", "x"]


def test_no_frames_are_a_usage_error() -> None:
    assert RUNNER.invoke(app, ["bench", "peers", "--frames", "0"]).exit_code == 2


BENCHES = ["ceiling", "overlap", "shapes", "overhead", "ingest", "decode", "peers", "surface"]


@pytest.mark.parametrize("name", BENCHES)
def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert frameloom(["bench", name, "--plot", "/proc/x/y.png"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --plot /proc/x/y.png: cannot be written")


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert frameloom(["bench", "backends", "--out", "/proc/x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --out /proc/x/backends.json: cannot be written")


def test_weights_that_are_not_there_are_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert frameloom(["bench", "peers", "--weights", "/nope.pt"]) == 2
    assert capsys.readouterr().err == "error: --weights /nope.pt: there is no such file\n"


@pytest.mark.parametrize(
    ("command", "known"),
    [
        (["decode", "--format", "foo"], "tiff"),
        *((([name, "--backend", "foo"]), "openvino") for name in ("ceiling", "overlap", "peers")),
    ],
)
def test_unknown_choices_are_answered_with_the_known_ones(command: list[str], known: str) -> None:
    ended = RUNNER.invoke(app, ["bench", *command])
    assert ended.exit_code == 2
    assert known in ended.output


def test_every_format_of_the_bench_may_be_chosen() -> None:
    assert {each.value for each in PictureFormat} == {each.value for each in FORMATS}
