"""The image's recipe, as far as it can be judged without Docker."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bench.footage import STREAMS, draw_footage
from tests.deploy.compose import ROOT, copied, env_file, services

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = [source.rstrip("/") for source in copied(DOCKERFILE)]


def test_hadolint_has_nothing_to_say() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    hadolint = str(beside) if beside.exists() else shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint not found")
    done = subprocess.run(
        [hadolint, str(DOCKERFILE)], capture_output=True, text=True, timeout=3000, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_it_copies_what_is_there_and_all_that_is_needed() -> None:
    assert [source for source in SOURCES if not (ROOT / source).exists()] == []
    packages = PROJECT["tool"]["setuptools"]["packages"]
    needed = {*packages, "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "configs"}
    assert needed <= set(SOURCES)
    for command in (service["command"] for service in services().values() if "build" in service):
        for word in command if isinstance(command, list) else command.split():
            if word.endswith(".yaml"):
                assert word.split("/")[0] in SOURCES


def test_the_build_context_holds_what_is_copied_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(SOURCES)


@pytest.mark.parametrize("extra", ["dali", "backends"])
def test_it_installs_the_projects_own_list(extra: str) -> None:
    script = ROOT / "deploy" / "requirements.py"
    done = subprocess.run(
        [sys.executable, script, extra], capture_output=True, text=True, timeout=300, check=True
    )
    extras = PROJECT["project"]["optional-dependencies"]
    assert done.stdout.splitlines() == [*PROJECT["project"]["dependencies"], *extras[extra]]


def test_by_default_it_has_what_auto_chooses_among_on_a_cpu() -> None:
    assert '\nARG EXTRAS="backends"\n' in DOCKERFILE.read_text()
    assert env_file(ROOT / ".env")["FRAMELOOM_EXTRAS"] == "backends"
    args = services({})["worker"]["build"]["args"]
    assert args["EXTRAS"] == "backends"


def test_the_headless_opencv_takes_the_pinned_version() -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    assert len([line for line in pinned if line.startswith("opencv-python==")]) == 1


def test_it_runs_as_the_user_that_compose_names() -> None:
    text = DOCKERFILE.read_text()
    user = services()["worker"]["user"]
    assert f"USER {user}" in text
    assert text.count("python:3.11.14-slim-bookworm") == text.count("\nFROM ")


def test_footage_is_a_folder_of_pictures_for_each_stream(tmp_path: Path) -> None:
    folders = draw_footage(tmp_path, pictures=1)
    assert [folder.name for folder in folders] == list(STREAMS)
    for folder in folders:
        assert [path.name for path in folder.iterdir()] == ["000.jpg"]
        assert (folder / "000.jpg").read_bytes().startswith(b"\xff\xd8")
