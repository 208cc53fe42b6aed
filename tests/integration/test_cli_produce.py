"""`frameloom produce` against a broker: what is sent is what the files hold."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from frameloom.cli import main
from schemas.codec import read_frame
from schemas.frame import Encoding, Form
from tests.builders_pictures import jpeg, picture, png
from tests.builders_video import a_video
from tests.integration.produced import DEADLINE_S, LIMITS, PAUSE_S, frames_of, records_of

pytestmark = pytest.mark.broker


def test_a_picture_goes_out_as_it_is(broker: str, topic: str, tmp_path: Path) -> None:
    data = jpeg(picture(40, 30))
    (tmp_path / "a.jpg").write_bytes(data)
    before_us = time.time_ns() // 1000
    assert main(["produce", str(tmp_path / "a.jpg"), "-t", topic, "-b", broker]) == 0
    (record,) = records_of(broker, topic)
    frame = read_frame(record, LIMITS)
    assert record.key == b"stills"
    assert (frame.stream_id, frame.seq, frame.encoding) == ("stills", 0, Encoding.JPEG)
    assert bytes(frame.data) == data
    assert before_us <= frame.captured_at_us <= time.time_ns() // 1000
    assert (frame.interval_us, frame.ttl_ms, frame.form) == (None, None, Form.ENVELOPE)
    assert not frame.key_mismatch


def test_a_folder_with_broken_files_sends_the_rest_and_fails_by_name(
    broker: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = png(picture(20, 20))
    for name, data in {"a.png": good, "b.png": good[:20], "c.png": b"", "d.png": good}.items():
        (tmp_path / name).write_bytes(data)
    arguments = ["produce", str(tmp_path), "-t", topic, "-b", broker, "--stream", "cam", "--json"]
    assert main(arguments) == 1
    said = capsys.readouterr()
    tally = json.loads(said.out)
    assert (tally["sent"], tally["failed"]) == (2, 2)
    assert {Path(name).name for name in tally["failures"]} == {"b.png", "c.png"}
    assert [frame.seq for frame in frames_of(broker, topic)] == [0, 1]


def test_a_video_keeps_its_times(broker: str, topic: str, tmp_path: Path) -> None:
    stamps = [0, 40, 80, 200, 240]
    a_video(tmp_path / "drive.mkv", stamps, rate=25)
    assert main(["produce", str(tmp_path / "drive.mkv"), "-t", topic, "-b", broker]) == 0
    frames = frames_of(broker, topic)
    assert {frame.stream_id for frame in frames} == {"drive"}
    first_us = frames[0].captured_at_us
    assert [(frame.captured_at_us - first_us) // 1000 for frame in frames] == stamps
    assert {frame.interval_us for frame in frames} == {40_000}
    # Paced: the last frame cannot have been sent before it was due.
    assert time.time_ns() // 1000 >= frames[-1].captured_at_us


def test_fps_ttl_and_interval_override_the_video(broker: str, topic: str, tmp_path: Path) -> None:
    a_video(tmp_path / "v.mkv", [0, 1000, 2000], rate=1)
    arguments = ["produce", str(tmp_path / "v.mkv"), "-t", topic, "-b", broker, "--fps", "50"]
    assert main([*arguments, "--ttl-ms", "700", "--interval-ms", "33.3"]) == 0
    frames = frames_of(broker, topic)
    steps = [b.captured_at_us - a.captured_at_us for a, b in pairwise(frames)]
    assert steps == [20_000, 20_000]
    assert {(frame.ttl_ms, frame.interval_us) for frame in frames} == {(700, 33_300)}


def test_a_loop_goes_on_with_rising_seq_and_time(broker: str, topic: str, tmp_path: Path) -> None:
    a_video(tmp_path / "v.mkv", [0, 20, 40], rate=50)
    arguments = ["produce", str(tmp_path / "v.mkv"), "-t", topic, "-b", broker]
    assert main([*arguments, "--loop", "--count", "7"]) == 0
    frames = frames_of(broker, topic)
    assert [frame.seq for frame in frames] == list(range(7))
    stamps = [frame.captured_at_us - frames[0].captured_at_us for frame in frames]
    assert stamps == [i * 20_000 for i in range(7)]


@pytest.mark.parametrize(("flag", "form"), [("--bare", Form.BARE), ("--json-frames", Form.JSON)])
def test_the_other_forms_carry_the_same_picture(
    broker: str, topic: str, tmp_path: Path, flag: str, form: Form
) -> None:
    data = jpeg(picture(40, 30))
    (tmp_path / "a.jpg").write_bytes(data)
    arguments = ["produce", str(tmp_path / "a.jpg"), "-t", topic, "-b", broker, flag]
    assert main([*arguments, "--stream", "cam"]) == 0
    (frame,) = frames_of(broker, topic)
    assert (frame.form, frame.stream_id, frame.ordered) == (form, "cam", True)
    assert bytes(frame.data) == data


def test_several_sources_are_several_streams_side_by_side(
    broker: str, topic: str, tmp_path: Path
) -> None:
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.jpg").write_bytes(jpeg(picture(20, 20, seed=i)))
    arguments = ["produce", str(tmp_path / "north"), str(tmp_path / "south"), "-t", topic]
    assert main([*arguments, "-b", broker, "--count", "2"]) == 0
    frames = frames_of(broker, topic)
    assert [(frame.stream_id, frame.seq) for frame in frames] == [
        ("north", 0), ("north", 1), ("south", 0), ("south", 1),
    ]  # fmt: skip


def test_a_record_over_the_limit_is_named_and_not_sent(
    broker: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "big.png").write_bytes(png(picture(200, 200)))
    (tmp_path / "small.png").write_bytes(png(picture(4, 4)))
    monkeypatch.setenv("FRAMELOOM__LIMITS__MAX_RECORD_BYTES", "5000")
    assert main(["produce", str(tmp_path), "-t", topic, "-b", broker]) == 1
    said = capsys.readouterr()
    assert "big.png" in said.err
    assert "sent 1 frames" in said.out
    assert "failed 1" in said.out


def test_a_missing_topic_is_a_clear_error(
    broker: str, unique: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(picture(8, 8)))
    missing = unique("missing")
    assert main(["produce", str(tmp_path / "a.jpg"), "-t", missing, "-b", broker]) == 2
    said = capsys.readouterr().err
    assert missing in said
    assert "frameloom topics create" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_loop_in_order(
    broker: str, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(picture(20, 20)))
    command = [
        sys.executable, "-m", "frameloom", "produce", str(tmp_path / "a.jpg"), "-t", topic,
        "-b", broker, "--loop", "--fps", "20", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        give_up_at = time.monotonic() + DEADLINE_S
        while not records_of(broker, topic):
            assert process.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(PAUSE_S)
        process.send_signal(number)
        said, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert "Traceback" not in errors
    # What it says it sent is what is there: nothing in flight was forgotten.
    assert json.loads(said)["sent"] == len(records_of(broker, topic))
