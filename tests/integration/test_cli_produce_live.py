"""`frameloom produce` with cameras, lists and watched folders, against a broker."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frameloom.cli import main
from schemas.frame import Encoding
from tests.builders_pictures import jpeg, picture
from tests.builders_rtsp import RtspCamera, footage, rtsp_camera
from tests.builders_video import an_h264_video
from tests.integration.produced import DEADLINE_S, PAUSE_S, frames_of, records_of

pytestmark = pytest.mark.broker


class Running:
    """The command as a process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def until(self, happened: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + DEADLINE_S
        while not happened():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < give_up_at
            time.sleep(PAUSE_S)

    def stop(self, number: signal.Signals) -> tuple[dict[str, object], str]:
        """What it said at the end, and on standard error."""
        self.process.send_signal(number)
        said, errors = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == 0, errors
        assert "Traceback" not in errors
        return json.loads(said), errors


@contextmanager
def running(*arguments: str, environment: dict[str, str] | None = None) -> Iterator[Running]:
    command = [sys.executable, "-m", "frameloom", "produce", *arguments, "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | (environment or {}),
    )  # fmt: skip
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_camera_is_sent_through_an_outage_and_stops_in_order(
    broker: str, topic: str, number: signal.Signals
) -> None:
    camera = RtspCamera(footage(), credentials="viewer:s3cr3t")
    with rtsp_camera(camera):
        url = f"rtsp://viewer:${{CAMERA_PASSWORD}}@127.0.0.1:{camera.port}/stream1"
        with running(
            url, "-t", topic, "-b", broker, "--stream", "gate",
            environment={"CAMERA_PASSWORD": "s3cr3t"},
        ) as command:  # fmt: skip
            command.until(lambda: camera.served >= 20)
            camera.stop()
            camera.start()
            command.until(lambda: camera.clients >= 2)
            served = camera.served
            command.until(lambda: camera.served >= served + 20)
            tally, errors = command.stop(number)
    assert "s3cr3t" not in errors + json.dumps(tally)
    assert "gate: connected again" in errors
    stream = tally["streams"]["gate"]
    assert stream["reconnects"] == 1
    assert stream["read"] == stream["sent_frames"] + sum(stream["dropped"].values())
    frames = frames_of(broker, topic)
    assert len(frames) == tally["sent"]
    assert [frame.seq for frame in frames] == list(range(len(frames)))
    stamps = [frame.captured_at_us for frame in frames]
    assert stamps == sorted(stamps)


def test_a_video_in_segments(broker: str, topic: str, tmp_path: Path) -> None:
    an_h264_video(tmp_path / "drive.mp4", frames=50, fps=25, key_every=10)
    arguments = ["produce", str(tmp_path / "drive.mp4"), "-t", topic, "-b", broker]
    assert main([*arguments, "--segment", "400ms", "--sample-fps", "5"]) == 0
    segments = frames_of(broker, topic)
    assert [segment.seq for segment in segments] == [0, 10, 20, 30, 40]
    assert {segment.encoding for segment in segments} == {Encoding.MP4}
    assert {(s.interval_us, s.sample_fps) for s in segments} == {(40_000, 5.0)}
    first_us = segments[0].captured_at_us
    assert [s.captured_at_us - first_us for s in segments] == [i * 400_000 for i in range(5)]
    # A camera has a segment only once it is over.
    assert time.time_ns() // 1000 >= segments[-1].captured_at_us + 400_000


def test_names_on_standard_input(
    broker: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(picture(20, 20, seed=i)))
    names = [str(tmp_path / f"{i}.jpg") for i in (2, 0, 1)] + ["", "nowhere.jpg"]
    lines = io.TextIOWrapper(io.BytesIO("\n".join(names).encode()))
    monkeypatch.setattr(sys, "stdin", lines)
    assert main(["produce", "-", "-t", topic, "-b", broker]) == 1
    said = capsys.readouterr()
    assert "nowhere.jpg: No such file" in said.err
    frames = frames_of(broker, topic)
    assert [(frame.stream_id, frame.seq) for frame in frames] == [("stdin", i) for i in range(3)]
    wanted = [Path(name).read_bytes() for name in names[:3]]
    assert [bytes(frame.data) for frame in frames] == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="--watch needs Linux")
def test_a_watched_folder_sends_what_is_completed_in_it(
    broker: str, topic: str, tmp_path: Path
) -> None:
    folder = tmp_path / "inbox"
    folder.mkdir()
    data = [jpeg(picture(20, 20, seed=i)) for i in range(4)]
    (folder / "a.jpg").write_bytes(data[0])
    with running(
        str(folder), "--watch", "--existing", "-t", topic, "-b", broker, "--stream", "inbox"
    ) as command:
        command.until(lambda: len(records_of(broker, topic)) == 1)
        half = (folder / "half.jpg").open("wb")
        half.write(data[1][:50])
        half.flush()
        (tmp_path / "moved.jpg").write_bytes(data[2])
        (tmp_path / "moved.jpg").rename(folder / "moved.jpg")
        command.until(lambda: len(records_of(broker, topic)) == 2)
        half.write(data[1][50:])
        half.close()
        command.until(lambda: len(records_of(broker, topic)) == 3)
        tally, _ = command.stop(signal.SIGTERM)
    assert tally["failed"] == 0
    assert [bytes(frame.data) for frame in frames_of(broker, topic)] == [data[0], data[2], data[1]]


def test_the_byte_rate_bounds_what_goes_out(broker: str, topic: str, tmp_path: Path) -> None:
    data = jpeg(picture(60, 60))
    for i in range(6):
        (tmp_path / f"{i}.jpg").write_bytes(data)
    began = time.monotonic()
    arguments = ["produce", str(tmp_path), "-t", topic, "-b", broker]
    # One second's worth goes at once, the rest takes its time.
    assert main([*arguments, "--rate", str(3 * len(data))]) == 0
    assert time.monotonic() - began >= 0.9
    assert len(frames_of(broker, topic)) == 6
