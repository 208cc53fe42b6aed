"""Cameras that answer, break off, fall silent, refuse and come back: what a live source makes of
them. No broker."""

from __future__ import annotations

import socket
import time
from itertools import pairwise

import cv2
import numpy as np
import pytest

from frameloom.dial import Dial
from frameloom.live_reader import LiveState
from frameloom.network import NetworkOptions
from frameloom.pace import Thinner
from frameloom.sources import SourceFrame
from frameloom.tally import Drop
from schemas.frame import Encoding
from tests.builders_mjpeg import MjpegCamera, mjpeg_camera
from tests.builders_pictures import jpeg, picture
from tests.builders_rtsp import Footage, RtspCamera, footage, rtsp_camera
from tests.integration.cameras import (
    SEGMENT,
    meanwhile,
    options,
    take,
    unpacked,
    wait_for,
)


@pytest.fixture(scope="module")
def film() -> Footage:
    return footage()


def grey(frame: SourceFrame) -> float:
    return float(cv2.imdecode(np.frombuffer(frame.data, np.uint8), cv2.IMREAD_COLOR).mean())


async def test_an_rtsp_camera_s_frames_keep_its_times(film: Footage) -> None:
    began_us = time.time_ns() // 1000
    with rtsp_camera(RtspCamera(film)) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 30)
    frames = taken.frames
    assert {frame.encoding for frame in frames} == {Encoding.JPEG}
    assert {frame.interval_us for frame in frames} == {40_000}
    now_us = time.time_ns() // 1000
    stamps = [frame.captured_at_us or 0 for frame in frames]
    assert all(b - a >= 0 for a, b in pairwise(stamps))
    assert all(began_us - 20_000_000 < stamp <= now_us for stamp in stamps)
    greys = [grey(frame) for frame in frames]
    assert greys == sorted(greys)
    assert taken.read == len(frames) + sum(taken.dropped.values())


async def test_the_camera_s_own_clock_is_taken_where_it_tells_it(film: Footage) -> None:
    with rtsp_camera(RtspCamera(film, clock_ahead_s=-2.0)) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 40)
    stamps = [frame.captured_at_us or 0 for frame in taken.frames]
    # To the microsecond by the camera's clock, however they arrived.
    steps = [b - a for a, b in pairwise(stamps[-8:])]
    assert all(abs(step - 40_000) <= 2_000 for step in steps)
    assert time.time_ns() // 1000 - stamps[-1] >= 1_900_000


async def test_it_connects_again_after_a_cut_and_an_outage(film: Footage) -> None:
    with rtsp_camera(RtspCamera(film)) as camera:

        def trouble() -> None:
            wait_for(lambda: camera.served >= 15)
            camera.break_connections()
            wait_for(lambda: camera.clients == 2 and camera.served >= 40)
            camera.stop()
            camera.start()

        async with meanwhile(trouble):
            taken = await take(
                camera.url,
                lambda t: t.count_of(LiveState.LIVE) >= 3 and len(t.frames) >= 60,
            )
    assert taken.count_of(LiveState.LIVE) == 3
    assert taken.count_of(LiveState.WAITING) >= 2
    stamps = [frame.captured_at_us or 0 for frame in taken.frames]
    assert stamps == sorted(stamps)
    assert taken.read == len(taken.frames) + sum(taken.dropped.values())


async def test_a_silent_camera_is_connected_to_again(film: Footage) -> None:
    with rtsp_camera(RtspCamera(film)) as camera:

        def stall() -> None:
            wait_for(lambda: camera.served >= 12)
            camera.stalled.set()
            wait_for(lambda: camera.clients >= 2)
            camera.stalled.clear()

        async with meanwhile(stall):
            how = options(network=NetworkOptions(timeout_s=1.0))
            taken = await take(camera.url, lambda t: t.count_of(LiveState.LIVE) >= 2, how=how)
    notes = [note for state, note in taken.states if state is LiveState.WAITING]
    assert "no answer in 1 s" in notes[0]


async def test_credentials_are_used_and_never_told(film: Footage) -> None:
    with rtsp_camera(RtspCamera(film, credentials="viewer:s3cr3t")) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 3)
        assert len(taken.frames) == 3
        refused = await take(camera.url.replace("s3cr3t", "wr0ng"), lambda t: False)
    told = repr((taken.frames, taken.states, refused.states, refused.broken))
    assert "s3cr3t" not in told
    assert "wr0ng" not in told
    # Tried once: more could lock the account.
    assert refused.count_of(LiveState.CONNECTING) == 1
    assert "401" in refused.broken[0].why


async def test_a_camera_that_is_away_is_given_up_when_asked_to() -> None:
    taken = await take("rtsp://127.0.0.1:1/x", lambda t: False, how=options(retries=2))
    assert taken.count_of(LiveState.CONNECTING) == 3
    (broken,) = taken.broken
    assert broken.why.startswith("given up after 3 tries: ")


async def test_mjpeg_goes_out_byte_by_byte_and_a_hang_up_is_mended() -> None:
    pictures = [jpeg(picture(48, 32, seed=i)) for i in range(3)]
    with mjpeg_camera(MjpegCamera(pictures, per_connection=9)) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 20)
        assert camera.connections >= 3
    assert {frame.data for frame in taken.frames} <= set(pictures)
    assert taken.count_of(LiveState.LIVE) >= 3


async def test_a_camera_that_takes_the_connection_and_says_nothing_is_called_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rtsp://127.0.0.1:{listener.getsockname()[1]}/stream1"
        how = options(network=NetworkOptions(timeout_s=0.3), retries=0)
        taken = await take(url, lambda _: False, how=how)
    assert taken.states[-1] == (LiveState.ENDED, "given up after 1 tries: no answer in 0.3 s")


async def test_mjpeg_carries_no_times_and_none_are_made_up() -> None:
    pictures = [jpeg(picture(48, 32, seed=i)) for i in range(3)]
    began_us = time.time_ns() // 1000
    with mjpeg_camera(MjpegCamera(pictures, fps=10.0)) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 10)
    assert {frame.interval_us for frame in taken.frames} == {None}
    # It waited nine times before it sent the last one.
    assert (taken.frames[-1].captured_at_us or 0) - began_us >= 850_000


async def test_a_slow_taker_loses_the_oldest_and_they_are_counted() -> None:
    with mjpeg_camera(MjpegCamera([jpeg(picture(48, 32))], fps=200.0)) as camera:
        taken = await take(
            camera.url, lambda t: t.dropped[Drop.SLOW_BROKER] > 0, buffer=2, slowly_s=0.05
        )
    assert taken.read == len(taken.frames) + sum(taken.dropped.values())


async def test_thinned_frames_are_counted() -> None:
    with mjpeg_camera(MjpegCamera([jpeg(picture(48, 32))], fps=100.0)) as camera:
        dial = Dial(90, Thinner(10.0))
        taken = await take(
            camera.url, lambda t: len(t.frames) >= 5 and t.dropped[Drop.FPS] > 5, dial=dial
        )
    assert taken.read == len(taken.frames) + sum(taken.dropped.values())


async def test_h264_becomes_segments_without_being_encoded_anew(film: Footage) -> None:
    # It tells its time: what counts is when a segment begins, not when it comes.
    with rtsp_camera(RtspCamera(film, clock_ahead_s=0.0)) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 4, how=options(segment=SEGMENT))
    sent = {b"".join(unit) for unit in film.units}
    for segment in taken.frames:
        assert segment.encoding is Encoding.MP4
        assert segment.frames == 10
        assert segment.lasts_us == pytest.approx(400_000, abs=1_000)
        stamps, payloads = unpacked(segment.data)
        assert len(stamps) == 10
        assert stamps[0] == 0
        assert all(payload in sent for payload in payloads)
    starts = [frame.captured_at_us or 0 for frame in taken.frames]
    assert all(b - a >= 350_000 for a, b in pairwise(starts[1:]))
    assert taken.read == sum(f.frames for f in taken.frames) + sum(taken.dropped.values())


async def test_mjpeg_becomes_segments_of_h264() -> None:
    pictures = [jpeg(picture(49, 33, seed=i)) for i in range(3)]
    with mjpeg_camera(MjpegCamera(pictures, fps=25.0)) as camera:
        taken = await take(camera.url, lambda t: len(t.frames) >= 2, how=options(segment=SEGMENT))
    for segment in taken.frames:
        stamps, _ = unpacked(segment.data)
        assert len(stamps) == segment.frames
        assert stamps[0] == 0
