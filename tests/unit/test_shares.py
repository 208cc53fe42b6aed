"""A suite on several processes ends, and says which test a process died in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.shares import SCENARIOS

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests.rig.shares import Shares, how_it_ended

def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False
    return Shares(config, log)

def pytest_testnodedown(node, error):
    if error:
        print(f"died: {how_it_ended(node)}")
"""
GOOD = "def test_{0}(): pass\n"
FATAL = "import os\ndef test_fatal(): os._exit(7)\n"


def many(count: int) -> str:
    return "".join(GOOD.format(n) for n in range(count))


# Files in the order in which they are given out, and how many tests are in all.
SUITES: dict[str, tuple[dict[str, str], int]] = {
    "with most of it to come": (
        {f"test_{n}.py": FATAL + many(6) if n == 3 else many(2) for n in range(9)},
        8 * 2 + 6,
    ),
    "as the last of all": ({"test_0.py": many(9), "test_1.py": many(9) + FATAL}, 18),
    "with single tests to come": (
        {"test_0.py": FATAL + many(1), **{f"test_{n}.py": many(1) for n in range(1, 8)}},
        8,
    ),
    "among units of one test": ({SCENARIOS: FATAL + many(7), "test_9.py": many(3)}, 10),
    "in every file": ({f"test_{n}.py": many(2) + FATAL + GOOD.format("z") for n in range(3)}, 9),
}


@pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))
def test_a_process_that_dies_costs_the_test_it_was_in(
    suite: tuple[dict[str, str], int], tmp_path: Path
) -> None:
    files, passed = suite
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    died = sum(text.count("_exit") for text in files.values())
    assert re.search(rf"^{died} failed, {passed} passed", done.stdout, re.MULTILINE), done.stdout
    assert done.stdout.count("died: exit code 7") == died
    said = re.findall(r"crashed while running '(\S+)'", done.stdout)
    assert {test.rpartition("::")[2] for test in said} == {"test_fatal"}
