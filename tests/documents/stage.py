"""Where commands run: a folder with what they name, one broker, one worker, a camera.

A command runs as it stands but for what is the reader's own: addresses become those of this stage,
and what has no end is given one (`Stage.here`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frameloom.children import end, spawn, tail
from schemas.codec import write_frame
from schemas.frame import Encoding, FrameMessage
from schemas.settings import KafkaSettings
from tests.builders_pictures import jpeg, picture
from tests.builders_rtsp import RtspCamera, footage, rtsp_camera
from tests.builders_video import an_h264_video
from tests.documents.blocks import ROOT
from tests.rig.ports import free_ports
from workers.kafka_clients import make_producer, start_client, stop_client

DEADLINE_S = 600.0
"""How long anything that must happen may take, on a busy machine."""
ANSWER_S = 60.0
BROKER = ".venv/bin/frameloom broker --port 9092"
TOPICS = ".venv/bin/frameloom topics create --config configs/cpu.yaml"
WORKER = ".venv/bin/frameloom worker --config configs/cpu.yaml"
"""The README's own first commands: the stage is set by them."""
SETTERS = (BROKER, TOPICS, WORKER)

_CAMERA = re.compile(r"rtsp://((?:[^@\s/]+@)?)(gate\.example|10\.0\.0\.\d+)/")
_LIVE = re.compile(r"rtsp://|--watch\b")
_ENDLESS = re.compile(r"\bconsume\b(?!.*--(?:count|timeout)\b)")


def until(happened: Callable[[], bool], what: str) -> None:
    """Wait until it happened; fails after the deadline."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < give_up_at, f"not in {DEADLINE_S:g} s: {what}"
        time.sleep(0.05)


@dataclass
class Stage:
    """A folder, and what runs beside it."""

    folder: Path
    kafka_port: int
    http_port: int
    camera: RtspCamera
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What the reader's machine has: this stage's settings, `frameloom` on the path."""
        return {
            **os.environ,
            "PATH": f"{self.folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FRAMELOOM__KAFKA__BOOTSTRAP_SERVERS": self.bootstrap,
            "FRAMELOOM__ROUTES__0__BACKEND": "torch",
            "FRAMELOOM__DEVICE__CALIBRATE": "off",
            "COLUMNS": "200",
        }

    def here(self, text: str) -> str:
        """The command with this stage's addresses, and with an end."""
        text = text.replace("127.0.0.1:9092", self.bootstrap)
        text = text.replace("--port 9092", f"--port {self.kafka_port}")
        text = text.replace("127.0.0.1:9464", f"127.0.0.1:{self.http_port}")
        text = _CAMERA.sub(rf"rtsp://\g<1>127.0.0.1:{self.camera.port}/\g<2>/", text)
        text = text.replace("/archive", "archive").replace("--timeout 10", "--timeout 1")
        if _LIVE.search(text) and "--count" not in text:
            text += " --count 1"
        if _ENDLESS.search(text):
            text += " --timeout 1"
        return text

    def health(self) -> dict[str, Any]:
        """What the worker says of itself; empty while it does not."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}/readyz", timeout=ANSWER_S
            ) as it:
                return dict(json.load(it))
        except OSError:
            return {}

    def start(self, text: str) -> None:
        """Start a command that runs until it is told to stop."""
        words = self.here(text).split()
        log = (self.folder / f"{words[1]}.log").open("wb")
        with log:
            self.processes[text] = spawn(
                [str(self.folder / words[0]), *words[1:]], log=log, env=self.environment | {
                    "FRAMELOOM__HTTP__PORT": str(self.http_port),
                    "FRAMELOOM__LIFECYCLE__JOURNAL_DIR": str(self.folder / "journal"),
                },
            )  # fmt: skip

    def running(self, text: str) -> bool:
        """Whether it runs. Fails with its last lines if it ended."""
        process = self.processes[text]
        log = self.folder / f"{text.split()[1]}.log"
        assert process.poll() is None, f"{text} ended with {process.returncode}:\n{tail(log)}"
        return True

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell, to its end."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    @contextmanager
    def files_arriving(self) -> Iterator[None]:
        """Meanwhile pictures are moved into `inbox/`, one by one."""
        stop = threading.Event()

        def deliver() -> None:
            number = 0
            while not stop.wait(0.2):
                number += 1
                draft = self.folder / "draft.jpg"
                draft.write_bytes(jpeg(picture(64, 48, number)))
                draft.rename(self.folder / "inbox" / f"{number}.jpg")

        thread = threading.Thread(target=deliver)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def furnish(folder: Path) -> None:
    """Everything that the documents' commands name."""
    for shared in ("configs", "bench", "deploy"):
        (folder / shared).symlink_to(ROOT / shared)
    shutil.copy(ROOT / "configs" / "cpu.yaml", folder / "my.yaml")
    weights = ROOT / "bench" / "assets" / "frameloom-demo.pt"
    for model in ("yolov8n.pt", "mine.pt"):
        shutil.copy(weights, folder / model)
    for name in ("photos", "inbox", "archive", "models", "yolov8n_openvino_model", "journal"):
        (folder / name).mkdir()
    # Sources of one folder are sent one after the other, so a few pictures are enough.
    for n in range(4):
        for place in ("photos", "archive", "inbox"):
            (folder / place / f"{n}.jpg").write_bytes(jpeg(picture(96, 64, n)))
    for name in ("frame.jpg", "bus.jpg"):
        (folder / name).write_bytes(jpeg(picture(96, 64)))
    an_h264_video(folder / "holiday.mp4", frames=20, fps=20, key_every=10)
    tools = folder / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, options in {"frameloom": "-m frameloom", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
        (tools / name).chmod(0o755)


def send_a_broken_frame(bootstrap: str) -> None:
    """A JPEG cut off in its header: a dead letter that has a picture."""
    frame = FrameMessage(
        stream_id="broken", seq=0, captured_at_us=0, encoding=Encoding.JPEG,
        data=memoryview(jpeg(picture(96, 64))[:40]),
    )  # fmt: skip

    async def go() -> None:
        kafka = KafkaSettings(bootstrap_servers=bootstrap)
        producer = make_producer(kafka)
        await start_client(producer, kafka)
        try:
            await producer.send_and_wait("frames", write_frame(frame), key=b"broken")
        finally:
            await stop_client(producer)

    asyncio.run(go())


@contextmanager
def a_stage(folder: Path) -> Iterator[Stage]:
    """The stage, set by the README's own commands: broker, topics, worker, and some frames."""
    furnish(folder)
    with rtsp_camera(RtspCamera(footage(frames=50, key_every=10))) as camera:
        stage = Stage(folder, *free_ports(2), camera)
        try:
            stage.start(BROKER)
            until(lambda: stage.running(BROKER) and _listens(stage.kafka_port), BROKER)
            made = stage.run(stage.here(TOPICS))
            assert made.returncode == 0, made.stderr
            stage.start(WORKER)
            send_a_broken_frame(stage.bootstrap)
            sent = stage.run("frameloom produce holiday.mp4 photos/ --topic frames --fps 0")
            assert sent.returncode == 0, sent.stderr
            until(lambda: stage.running(WORKER) and bool(stage.health()), WORKER)
            until(lambda: _answered(stage) >= 25, "24 results and a dead letter")
            yield stage
        finally:
            codes = [end(p, grace_s=DEADLINE_S) for p in reversed(stage.processes.values())]
    assert codes[0] == 0, f"the worker ended with {codes[0]}:\n{tail(folder / 'worker.log')}"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answered(stage: Stage) -> int:
    page = f"http://127.0.0.1:{stage.http_port}/metrics"
    with urllib.request.urlopen(page, timeout=ANSWER_S) as it:
        text = it.read().decode()
    found = re.findall(r"(?m)^frameloom_(?:answered|dead_lettered)_total\{.*\} (\S+)$", text)
    return int(sum(float(value) for value in found))
