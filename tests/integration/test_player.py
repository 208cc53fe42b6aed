"""A camera and a broker that is slow: quality gives way, and every frame is accounted for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from frameloom.address import read_address
from frameloom.capture import CaptureError
from frameloom.live import LiveSource
from frameloom.live_reader import LiveOptions
from frameloom.network import NetworkOptions
from frameloom.player import Player
from frameloom.sender import ProduceOptions, Sender
from frameloom.tally import Drop, Tally
from frameloom.webcam import WebcamConnection
from schemas.codec import RawRecord, read_frame
from schemas.settings import LimitSettings
from tests.builders_mjpeg import MjpegCamera, mjpeg_camera
from tests.builders_pictures import jpeg, picture
from tests.builders_video import a_video

DEADLINE_S = 180.0


class LateProducer:
    """Acknowledges a second late, which is more than `--adaptive` calls late."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    async def send(self, topic: str, value: bytes, **_: object) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self.values.append(value)
        loop.call_later(1.0, future.set_result, None)
        return future


def sizes(producer: LateProducer) -> list[int]:
    records = [
        RawRecord(topic="frames", partition=0, offset=i, timestamp_ms=0, key=b"gate", value=value)
        for i, value in enumerate(producer.values)
    ]
    return [len(read_frame(record, LimitSettings()).data) for record in records]


async def test_quality_gives_way_to_a_slow_broker_and_every_frame_is_accounted_for() -> None:
    producer, tally = LateProducer(), Tally()
    options = ProduceOptions(topic="frames", adaptive=70, live_in_flight=4)
    sender = Sender(producer, options, tally)
    with mjpeg_camera(MjpegCamera([jpeg(picture(160, 120))])) as camera:
        source = LiveSource(
            read_address(camera.url, {}), LiveOptions(NetworkOptions(timeout_s=60.0)), buffer=4,
            limits=LimitSettings(),
        )  # fmt: skip
        player = Player("gate", sender, lambda _: None, lambda _, __: None, live=True)
        playing = asyncio.ensure_future(player.play([source]))
        async with asyncio.timeout(DEADLINE_S):
            while Drop.ADAPTIVE not in tally.dropped:
                await asyncio.sleep(0.01)
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    await sender.settle(DEADLINE_S)
    stream = tally.of("gate")
    assert stream.quality == 70
    # The camera's own JPEGs first, smaller ones of ours later.
    assert min(sizes(producer)) < sizes(producer)[0]
    assert stream.dropped[Drop.SLOW_BROKER] > 0
    assert stream.read == stream.sent_frames + sum(stream.dropped.values())
    assert stream.sent == len(producer.values)


def test_a_webcam_s_frames_come_until_it_is_gone(tmp_path: Path) -> None:
    # A file in a camera's place: the library reads both alike.
    video = a_video(tmp_path / "v.avi", [0, 100, 200])
    with WebcamConnection(str(video)) as webcam:
        assert webcam.interval_us
        with pytest.raises(CaptureError, match="no more"):
            list(webcam.pictures())
    with WebcamConnection(str(video)) as webcam:
        pictures = webcam.pictures()
        first, second = next(pictures), next(pictures)
    assert first.stamp_us is not None
    assert second.stamp_us is not None
    assert second.stamp_us >= first.stamp_us
    assert first.nbytes == 64 * 48 * 3


def test_a_webcam_that_is_not_there_is_named() -> None:
    with pytest.raises(CaptureError, match="no such camera"):
        WebcamConnection("/dev/video97")
