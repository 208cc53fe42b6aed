"""Every command of the documents runs, against one broker and one worker.

What cannot run here is listed in `elsewhere.py` with the reason, and its names are checked in
`test_names.py`. Commands of `frameloom` run in this process; pipes and other programs in a shell.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgpack
import pytest

import workers.detect
from frameloom import doctor
from frameloom.cli import main
from schemas.settings import Settings, load_settings
from tests.documents.blocks import BLOCKS, COMMANDS, Block, Command
from tests.documents.elsewhere import elsewhere
from tests.documents.stage import DEADLINE_S, SETTERS, Stage, a_stage, until

pytestmark = pytest.mark.broker

_ASSIGNMENT = re.compile(r"^([A-Z_0-9]+)=(\S*)\s+")
RUN = list({c.text: c for c in COMMANDS if elsewhere(c) is None}.values())
"""Those that run, each once."""
PYTHON = [block for block in BLOCKS if block.language == "python"]
YAML = [block for block in BLOCKS if block.language == "yaml"]
MAY_WARN = ("doctor",)
"""Commands whose code says what they found, 0 or 1: the embedded broker lacks what Kafka has."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with a_stage(tmp_path_factory.mktemp("reader")) as it:
        yield it


def block_id(block: Block) -> str:
    return f"{block.document}:{block.line}"


@pytest.mark.parametrize("command", RUN, ids=str)
def test_a_command_runs(
    stage: Stage,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if command.text in SETTERS:
        assert command.text not in stage.processes or stage.running(command.text)
        return
    text = stage.here(command.text)
    with stage.files_arriving() if "--watch" in text else nullcontext():
        code = run_here(stage, text, monkeypatch)
    shown = capfd.readouterr()
    allowed = {0, 1} if any(f" {name} " in text for name in MAY_WARN) else {0}
    assert code in allowed, f"{text}\n{shown.out}\n{shown.err}"


def run_here(stage: Stage, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The command's exit code."""
    for name, value in stage.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(stage.folder)
    while found := _ASSIGNMENT.match(text):
        monkeypatch.setenv(found[1], found[2])
        text = text[found.end() :]
    words = shlex.split(text)
    if "|" in words or not words[0].endswith("frameloom"):
        done = stage.run(text)
        sys.stderr.write(done.stderr)
        return done.returncode
    if words[1] == "doctor":
        # Native libraries take it long; tests/unit/test_doctor_child.py looks at them.
        monkeypatch.setattr(doctor, "CHECKS", {})
    # One worker runs for all: of the others, settings and models are looked at.
    monkeypatch.setattr(workers.detect, "run_worker", check_worker)
    if words[1] == "audit":
        # Beside a running worker what is in flight counts as lost, so until it has settled.
        until(lambda: main(words[1:]) == 0, text)
        return 0
    return main(words[1:])


def check_worker(settings: Settings, **_fleet: object) -> int:
    workers.detect._require_models(settings)
    return 0


# --- code and settings -------------------------------------------------------------------------


def python_block(name: str, holds: str) -> str:
    return next(b.text for b in PYTHON if b.document == name and holds in b.text)


def test_the_readmes_producer_and_consumer_talk(stage: Stage) -> None:
    producer = stage.here(python_block("README.md", "AIOKafkaProducer"))
    consumer = stage.here(python_block("README.md", "AIOKafkaConsumer"))
    sent = stage.run(f"python -W ignore -c {shlex.quote(producer)}")
    assert sent.returncode == 0, sent.stderr
    # The demo's model finds nothing on noise: show each result, not each detection.
    consumer = consumer.replace(
        'for found in result["detections"]:', 'for found in result["detections"] or [NOTHING]:'
    )
    nothing = {"label": "nothing", "score": 0.0, "box": [0, 0, 0, 0]}
    with subprocess.Popen(
        [sys.executable, "-u", "-c", f"NOTHING = {nothing!r}\n{consumer}"],
        cwd=stage.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as reading:  # fmt: skip
        assert reading.stdout is not None
        # It has no end: ended here, at its deadline or once the frame has come.
        alarm = threading.Timer(DEADLINE_S, reading.kill)
        alarm.start()
        seen = any(line.split()[:2] == ["gate", "0"] for line in reading.stdout)
        alarm.cancel()
        reading.kill()
    assert seen


@pytest.mark.parametrize("block", [b for b in PYTHON if "asyncio.run" not in b.text], ids=block_id)
def test_other_code_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bus.jpg").write_bytes(b"\xff\xd8")
    monkeypatch.chdir(tmp_path)
    given = {"msgpack": msgpack, "time": time, "hashlib": hashlib, "picture": b"\xff\xd8"}
    exec(compile(block.text, block_id(block), "exec"), given)  # noqa: S102 (our own documents)


@pytest.mark.parametrize("block", YAML, ids=block_id)
def test_settings_shown_are_read(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text(block.text)
    load_settings(file, env={})


def test_json_shown_is_json() -> None:
    for block in BLOCKS:
        if block.language == "json":
            json.loads(block.text)
