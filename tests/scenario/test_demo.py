"""The demo, as users run it: it passes, says so, and leaves nothing behind, interrupted or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import cv2
import msgspec
import psutil
import pytest

from frameloom.demo_broken import BROKEN_STREAM
from frameloom.demo_report import MIN_ACCURACY, Report
from frameloom.demo_streams import KINDS

pytestmark = pytest.mark.broker

COMMAND = [sys.executable, "-m", "frameloom", "demo", "--seconds", "5"]


def all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=300)
    return not alive


def test_the_demo_passes_and_its_report_adds_up(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--out", str(tmp_path), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report) == report
    assert report.failures == []
    balance = report.balance
    assert balance.received == balance.answered > 0
    assert (balance.lost, balance.duplicates, balance.out_of_order) == ([], 0, 0)
    for row in report.streams:
        assert row.received == row.ok + row.expired + row.skipped + row.dead_lettered
    assert {row.stream for row in report.streams} == {
        *(kind.name for kind in KINDS),
        BROKEN_STREAM,
    }
    assert sum(report.dead_letters.values()) == 6
    assert report.accuracy is not None
    assert min(report.accuracy.precision, report.accuracy.recall) >= MIN_ACCURACY
    sheet = cv2.imread(str(tmp_path / "contact-sheet.png"))
    assert sheet is not None
    assert sheet.shape[1] == 2000


def test_an_interrupted_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [*COMMAND, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stderr is not None
        for line in demo.stderr:
            if line.startswith("broker at"):
                break
        children = psutil.Process(demo.pid).children(recursive=True)
        assert children
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=300)
    finally:
        demo.kill()
        demo.communicate()
    assert demo.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert all_gone(children)


def test_weights_that_cannot_be_used_are_a_clear_error(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"nothing like weights")
    done = subprocess.run(
        [*COMMAND, "--out", str(tmp_path), "--model", str(weights)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert str(weights) in done.stderr
    assert "Traceback" not in done.stderr
