"""The demo's mixed streams as records: cameras of four sizes, a portrait one and stills, in the
proportions of their frame rates."""

from __future__ import annotations

from dataclasses import dataclass

import cv2

from bench.kafka_load import Load
from bench.scenes import HELD_OUT, Scene
from schemas.codec import write_frame
from schemas.frame import Encoding, FrameMessage

QUALITY = 85


@dataclass(frozen=True, slots=True)
class Kind:
    """One stream: its id, the size of its pictures, its frames per second, and how many different
    pictures it has."""

    stream: str
    width: int
    height: int
    fps: float
    pictures: int


KINDS = (
    Kind("gate-480p", 854, 480, 15.0, 6),
    Kind("avenue-1080p", 1920, 1080, 10.0, 4),
    Kind("plaza-4k", 3840, 2160, 5.0, 2),
    Kind("stills-portrait", 1080, 1920, 1.0, 2),
    Kind("yard-360p", 640, 360, 8.0, 4),
    Kind("hall-720p", 1280, 720, 4.0, 4),
)


def jpegs(kind: Kind) -> list[bytes]:
    """The stream's pictures, encoded."""
    scene = Scene(HELD_OUT + sum(kind.stream.encode()), kind.width, kind.height)
    pictures = (scene.frame(2.0 + 3.0 * n)[0] for n in range(kind.pictures))
    quality = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    return [cv2.imencode(".jpg", picture, quality)[1].tobytes() for picture in pictures]


def mixed_loads(frames: int, kinds: tuple[Kind, ...] = KINDS) -> list[Load]:
    """So many frames of all streams in the order of their capture, as envelopes without time to
    live: a bench compares work done, and nothing may expire where a machine is slow."""
    due = sorted(
        (number / kind.fps, index, number)
        for index, kind in enumerate(kinds)
        for number in range(1 + int(frames / len(kinds) * kind.fps))
    )[:frames]
    used = {index for _, index, _ in due}
    pictures = {index: jpegs(kinds[index]) for index in used}
    loads: list[Load] = []
    for at, index, number in due:
        kind, data = kinds[index], pictures[index]
        frame = FrameMessage(
            stream_id=kind.stream, seq=number, captured_at_us=round(at * 1e6),
            encoding=Encoding.JPEG, data=memoryview(data[number % len(data)]),
        )  # fmt: skip
        loads.append(Load(kind.stream.encode(), write_frame(frame)))
    return loads
