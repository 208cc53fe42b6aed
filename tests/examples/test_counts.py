"""The example service that counts objects per minute."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas.result import Status
from tests.examples.builds import EXAMPLES
from tests.examples.kit import CAR, PERSON, committed, result, run, send, with_keys

pytestmark = pytest.mark.broker

SERVICE = (sys.executable, str(EXAMPLES / "counts" / "counts.py"))
MINUTE_US = 60_000_000
FIRST_US = int(datetime(2026, 11, 29, 23, 34, tzinfo=UTC).timestamp()) * 1_000_000
HEADING = "minute            stream           label        frames   mean most"


def rows(said: str) -> list[list[str]]:
    heading, *lines = said.splitlines()
    assert heading == HEADING
    return [line.split() for line in lines]


def test_it_counts_by_time_of_capture_each_source_once_and_goes_on_where_it_was(
    broker: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = unique("detections"), unique("group")
    first = [
        result(0, CAR, CAR, PERSON, captured_at_us=FIRST_US),
        result(1, CAR, captured_at_us=FIRST_US + MINUTE_US - 1),
        result(2, CAR, captured_at_us=FIRST_US + MINUTE_US),
        result(1, CAR, captured_at_us=FIRST_US + MINUTE_US - 1),  # its frame was answered twice
        result(3, status=Status.EXPIRED, captured_at_us=FIRST_US),
        result(4, stream="yard", captured_at_us=FIRST_US),
        # Two frames of one segment of video: its record's coordinates, and the frame within.
        *(
            with_keys(
                result(seq, stream="video", captured_at_us=FIRST_US),
                source={"topic": "frames", "partition": 0, "offset": 9, "frame": seq},
            )
            for seq in (0, 1)
        ),
    ]
    send(broker, topic, *first)
    options = ("--bootstrap", broker, "--topic", topic, "--group", group)
    done = run(SERVICE, tmp_path, *options, "--count", "8")
    assert done.returncode == 0, done.stderr
    assert rows(done.stdout) == [
        ["2026-11-29T23:34Z", "gate", "car", "2", "1.50", "2"],
        ["2026-11-29T23:34Z", "gate", "person", "2", "0.50", "1"],
        ["2026-11-29T23:34Z", "video", "-", "2", "0.00", "0"],
        ["2026-11-29T23:34Z", "yard", "-", "1", "0.00", "0"],
        ["2026-11-29T23:35Z", "gate", "car", "1", "1.00", "1"],
    ]
    assert committed(broker, topic, group) == 8

    # A late frame, and one that was counted before.
    late = with_keys(result(5, CAR, captured_at_us=FIRST_US + 1), track={"id": 5})
    send(broker, topic, late, first[0])
    done = run(SERVICE, tmp_path, *options, "--count", "2")
    assert rows(done.stdout)[0] == ["2026-11-29T23:34Z", "gate", "car", "3", "1.33", "2"]
    send(broker, topic, result(6, CAR, captured_at_us=FIRST_US), with_keys(result(7), v=2))
    done = run(SERVICE, tmp_path, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "version 2" in done.stderr
    assert committed(broker, topic, group) == 10


def test_it_serves_the_table(broker: str, unique: Callable[[str], str], tmp_path: Path) -> None:
    topic = unique("detections")
    send(broker, topic, result(0, CAR, captured_at_us=FIRST_US))
    options = ("--bootstrap", broker, "--topic", topic, "--group", unique("group"), "--port", "0")
    assert run(SERVICE, tmp_path, *options, "--count", "1").returncode == 0
    with subprocess.Popen(
        [*SERVICE, *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            assert service.stderr is not None
            address = service.stderr.readline().split()[-1]
            with urllib.request.urlopen(address, timeout=180) as answer:  # noqa: S310 (an address of ours)
                assert rows(answer.read().decode())[0][:3] == ["2026-11-29T23:34Z", "gate", "car"]
        finally:
            service.terminate()
