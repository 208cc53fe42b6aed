"""Segments of video against JPEG frames: bytes per frame, how close the pixels are, CPU to decode.

    python -m bench.segments [--seconds N] [--scenes N]

Drawn scenes, 10 frames per second: every frame as a JPEG (quality 85), and every second as an H.264
segment in MP4 (x264, preset veryfast) at a few qualities (CRF). PSNR, over all pixels and channels,
is against the drawn frames. Scenes have a camera's noise, new in every frame, which is where the
bytes of high quality go. So the demo model is asked, too: recall is the share of drawn objects that
it finds, precision that of its boxes that are right (IoU 0.5, confidence 0.25). Decoding is timed
as the worker does it, to RGB, on one thread.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import av
import cv2
import numpy as np
from ultralytics import YOLO

from bench.eval_demo_model import WEIGHTS, detect
from bench.scene_backdrop import Picture
from bench.scenes import HELD_OUT, Match, Scene, Truth, match
from pipeline.decode_segment import PyAvSegments
from pipeline.segment import Sampling, SegmentLimits
from schemas.frame import Encoding, FrameMessage

RATE = 10
QUALITY = 85
CRFS = (28, 26, 23, 18)
"""From coarse to fine; 23 is x264's default."""
SHAPE = (384, 640)
"""Of the model's input, height and width: the demo's bucket for both sizes."""
SIZES = ((1280, 720), (1920, 1080))
LIMITS = SegmentLimits(max_pixels=50_000_000, max_frames=1_000, max_us=60_000_000)


@dataclass(frozen=True)
class Coded:
    """One way to send the same frames: bytes, decibels and milliseconds of CPU, each per frame."""

    name: str
    nbytes: float
    psnr: float
    cpu_ms: float
    match: Match

    def row(self, size: str, than: float) -> str:
        ratio = than / self.nbytes
        return (
            f"{size:<11} {self.name:<16} {self.nbytes:10,.0f} {ratio:7.1f} "
            f"{self.psnr:7.1f} {self.cpu_ms:7.1f} "
            f"{self.match.recall:7.2f} {self.match.precision:7.2f}"
        )


@dataclass(frozen=True)
class Film:
    """What was drawn, and who judges what became of it."""

    pictures: Sequence[Picture]
    truths: Sequence[Sequence[Truth]]
    model: YOLO

    def coded(self, name: str, nbytes: int, rgb: Sequence[Picture], cpu_s: float) -> Coded:
        bgr = [np.ascontiguousarray(each[..., ::-1]) for each in rgb]
        errors = [
            np.mean((drawn.astype(np.float32) - each.astype(np.float32)) ** 2)
            for drawn, each in zip(self.pictures, bgr, strict=True)
        ]
        psnr = 10 * np.log10(255**2 / np.mean(errors))
        found = Match()
        for truths, each in zip(self.truths, bgr, strict=True):
            found += match(truths, detect(self.model, each, SHAPE))
        count = len(self.pictures)
        return Coded(name, nbytes / count, float(psnr), cpu_s * 1e3 / count, found)


def jpegs(film: Film) -> Coded:
    data = [
        cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
        for picture in film.pictures
    ]
    began = time.process_time()
    decoded = [cv2.imdecode(each, cv2.IMREAD_COLOR_RGB) for each in data]
    cpu_s = time.process_time() - began
    rgb = [cast("Picture", each) for each in decoded if each is not None]
    return film.coded(f"JPEG {QUALITY}", sum(map(len, data)), rgb, cpu_s)


def segments(film: Film, crf: int) -> Coded:
    """Every second of it a segment of its own."""
    pictures = film.pictures
    data = [encode(pictures[at : at + RATE], crf) for at in range(0, len(pictures), RATE)]
    decoded: list[Picture] = []
    began = time.process_time()
    for each in data:
        decoded += decode(each)
    cpu_s = time.process_time() - began
    return film.coded(f"H.264 CRF {crf}", sum(map(len, data)), decoded, cpu_s)


def encode(pictures: Sequence[Picture], crf: int) -> bytes:
    """An MP4 file of one group of pictures."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        options = {"preset": "veryfast", "crf": str(crf)}
        stream = container.add_stream("libx264", rate=RATE, options=options)
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        for number, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="bgr24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def decode(data: bytes) -> list[Picture]:
    """Every frame as the worker gets it."""
    message = FrameMessage(
        stream_id="bench", seq=0, captured_at_us=0, encoding=Encoding.MP4, data=memoryview(data)
    )
    reader = PyAvSegments(LIMITS).open(message, Sampling())
    frames: list[Picture] = []
    while True:
        frame = reader.step()
        if frame is None:
            continue
        pixels = np.frombuffer(frame.pixels, np.uint8)
        frames.append(pixels.reshape(frame.height, frame.width, 3))
        if frame.last:
            reader.close()
            return frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--scenes", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{'size':<11} {'coded':<16} {'bytes':>10} {'fewer':>7} {'PSNR':>7} {'CPU ms':>7} "
        f"{'recall':>7} {'precis.':>7}"
    )
    model = YOLO(WEIGHTS)
    for width, height in SIZES:
        for seed in range(options.scenes):
            scene = Scene(HELD_OUT + seed, width, height)
            drawn = [scene.frame(n / RATE) for n in range(options.seconds * RATE)]
            film = Film([each[0] for each in drawn], [each[1] for each in drawn], model)
            still = jpegs(film)
            print(still.row(f"{width}×{height}", still.nbytes))
            for crf in CRFS:
                print(segments(film, crf).row("", still.nbytes))


if __name__ == "__main__":
    main()
