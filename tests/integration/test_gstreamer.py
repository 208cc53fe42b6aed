"""A camera by other hands: GStreamer's RTSP server (Debian: gir1.2-gst-rtsp-server-1.0, python3-gi,
gstreamer1.0-plugins-good), killed and started again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from frameloom.live_reader import LiveState
from tests.builders_video import an_h264_video
from tests.integration.cameras import SEGMENT, meanwhile, options, take, unpacked, wait_for
from tests.rig.ports import free_ports

PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
"""The system's, which has the bindings."""

SERVER = """
import sys, gi
gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer
Gst.init(None)
for element in ("qtdemux", "rtph264pay"):
    if Gst.ElementFactory.find(element) is None:
        sys.exit(f"no {element}")
if len(sys.argv) > 1:
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(sys.argv[1])
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(
        f"( filesrc location={sys.argv[2]} ! qtdemux ! rtph264pay name=pay0 pt=96 )"
    )
    server.get_mount_points().add_factory("/stream1", factory)
    if not server.attach(None):
        sys.exit("the port is taken")
    print("listening", flush=True)
    GLib.MainLoop().run()
"""


@pytest.fixture(scope="module")
def gstreamer() -> str:
    """The Python that has GStreamer's RTSP server; the test is skipped where there is none."""
    if (
        PYTHON is None
        or subprocess.run([PYTHON, "-c", SERVER], capture_output=True, check=False).returncode
    ):
        pytest.skip("GStreamer's RTSP server and its Python bindings are not installed")
    return PYTHON


@contextmanager
def served(python: str, port: int, video: Path) -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen(
        [python, "-c", SERVER, str(port), str(video)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        yield server
    finally:
        server.kill()
        server.communicate()


async def test_segments_of_a_server_that_is_killed_and_comes_back(
    gstreamer: str, tmp_path: Path
) -> None:
    # Longer than the test takes: the file is sent in real time.
    video = an_h264_video(tmp_path / "v.mp4", frames=1_800, fps=10, key_every=5)
    (port,) = free_ports(1)
    url = f"rtsp://127.0.0.1:{port}/stream1"
    seen: list[int] = []

    def outage() -> None:
        with served(gstreamer, port, video):
            wait_for(lambda: len(seen) >= 2)
        with served(gstreamer, port, video):
            wait_for(lambda: seen[-1:] == [-1])

    async with meanwhile(outage):
        taken = await take(
            url,
            lambda t: seen.append(len(t.frames)) or t.count_of(LiveState.LIVE) >= 2,
            how=options(segment=SEGMENT),
        )
        seen.append(-1)
    assert taken.count_of(LiveState.LIVE) == 2
    for segment in taken.frames:
        stamps, _ = unpacked(segment.data)
        assert len(stamps) == segment.frames
        # Frames out of order come out in order, each at its time.
        tenths = [round(stamp * 10) for stamp in stamps]
        assert tenths == sorted(set(tenths))
        assert stamps == pytest.approx([tenth / 10 for tenth in tenths], abs=0.001)
    assert taken.read == sum(f.frames for f in taken.frames) + sum(taken.dropped.values())
