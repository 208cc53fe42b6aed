"""The command line without a broker: exit codes, one-line errors, a quick start."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from frameloom.cli import main
from tests.builders_pictures import jpeg, picture

NOWHERE = "127.0.0.1:1"
"""Nothing listens on port 1."""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["produce"],
        ["consume", "--topic", "t", "--count", "0"],
        ["demo", "--streams", "3"],
        ["worker", "--no-such-option"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    assert main(arguments) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["demo"], ["produce"], ["consume"], ["topics"], ["dlq", "list"], ["dlq", "replay"],
        ["audit"], ["worker"], ["export"],
    ],
)  # fmt: skip
def test_help_exits_with_0(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["produce", "nowhere.jpg", "-t", "frames"], "nowhere.jpg: no such file"),
        (["produce", "gopher://cam/1", "-t", "frames"], "gopher://cam/1: unknown scheme"),
        (["produce", "rtsp://a:${NO_SUCH}@cam/1", "-t", "frames"], "${NO_SUCH}"),
        (["produce", "rtsp://cam/1", "rtsp://cam/1", "-t", "frames"], "given twice"),
        (["produce", "rtsp://cam/1", "-t", "frames", "--loop"], "has no end"),
        (["produce", "rtsp://cam/1", "-t", "f", "--segment", "soon"], "'soon' is no time"),
        (["produce", "rtsp://cam/1", "-t", "f", "--segment", "1s", "--bare"], "its envelope"),
        (["produce", "rtsp://cam/1", "-t", "f", "--segment", "1s", "--fps", "5"], "--sample-fps"),
        (["produce", "rtsp://cam/1", "-t", "f", "--segment", "1s", "--adaptive"], "none"),
        (["produce", "rtsp://cam/1", "-t", "f", "--sample-every", "2"], "go with --segment"),
        (["produce", "rtsp://cam/1", "-t", "f", "--rate", "fast"], "'fast' is no amount"),
        (["produce", "rtsp://cam/1", "-t", "f", "--existing"], "goes with --watch"),
        (["produce", "rtsp://cam/1", "-t", "f", "--watch"], "no folder is given"),
        (["produce", "rtsp://cam/1", "-t", "f", "--adaptive", "--quality", "20"], "above"),
        (["produce", "x", "-t", "t", "--bare", "--json-frames"], "exclude each other"),
        (["produce", "x", "-t", "t", "--bare", "--ttl-ms", "5"], "cannot carry"),
        (["dlq", "show", "frames.dlq"], "TOPIC/PARTITION/OFFSET"),
        (["dlq", "list", "--reason", "odd"], "known are empty_record"),
        (["topics", "list", "-b", "no-port"], "is not host:port"),
        (["topics", "list", "-c", "nowhere.yaml"], "nowhere.yaml"),
        (["worker", "--set", "kafka.bootstrap_server=x"], "bootstrap_servers"),
        (["worker", "--set", "routes.0.model=nowhere.pt"], "routes.default.model = nowhere.pt"),
    ],
)
def test_a_wrong_setting_or_argument_is_one_clear_line_and_exit_code_2(
    arguments: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert names in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert "Traceback" not in said.err


def test_a_broker_that_is_away_exits_with_1_and_names_the_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topics", "list", "-b", NOWHERE]) == 1
    said = capsys.readouterr().err
    assert said.startswith("failed: ")
    assert NOWHERE in said


def test_json_says_what_was_sent_even_when_nothing_could_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(picture(16, 16)))
    arguments = ["produce", str(tmp_path / "a.jpg"), "-t", "frames", "-b", NOWHERE, "--json"]
    assert main(arguments) == 1
    assert '"sent":0' in capsys.readouterr().out


def test_error_texts_are_not_read_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "[bold]nowhere[/bold].jpg", "-t", "frames"]) == 2
    assert "[bold]nowhere[/bold].jpg" in capsys.readouterr().err


def test_the_command_starts_without_the_heavy_libraries() -> None:
    heavy = ("torch", "ultralytics", "cv2", "av", "aiokafka", "numpy", "PIL")
    script = f"import sys, frameloom.cli; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_file_where_a_folder_is_needed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_bytes(b"")
    assert main(["consume", "-t", "t", "--draw", str(taken)]) == 2
    said = capsys.readouterr().err
    assert "--draw" in said
    assert "is a file" in said


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"frameloom {version('frameloom')}\n"


def test_ctrl_c_while_python_still_reads_the_command_is_no_traceback(tmp_path: Path) -> None:
    # A typer that is interrupted while it is imported, which is the first thing that takes time.
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = subprocess.run(
        [sys.executable, "-m", "frameloom", "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nothing_is_said_of_frames_that_were_never_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(picture(16, 16)))
    assert main(["produce", str(tmp_path / "a.jpg"), "-t", "frames", "-b", NOWHERE]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "failed 0" not in said.err
    assert NOWHERE in said.err


def test_a_worker_says_what_is_wrong_before_it_loads_torch() -> None:
    script = (
        "import sys; from frameloom.cli import main; "
        "code = main(['worker', '--set', 'http.enabled=false', '--set', "
        "'kafka.security_protocol=SSL', '--set', 'kafka.ssl_cafile=/nowhere.pem']); "
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2 False"
    assert "/nowhere.pem" in done.stderr


def test_a_missing_model_is_named_with_the_folder_it_was_looked_for_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["worker", "--set", "http.enabled=false"]) == 2
    assert f"frameloom-demo.pt: no such file in {tmp_path}" in capsys.readouterr().err


def test_python_m_frameloom_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "frameloom", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr
