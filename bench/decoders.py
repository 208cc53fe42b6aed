"""Decoders side by side: milliseconds per picture, and how far DALI's rows are from OpenCV's.

    python -m bench.decoders [--threads N] [--rounds N]

One thread each by default. The rounds of the two alternate, so that a busy machine burdens both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
import torch
from ultralytics.utils import ASSETS

from bench.frame_item import frame_item
from bench.scenes import Scene
from pipeline.bucket import Bucket
from pipeline.decode_dali import DaliDecoder
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.item import Item
from pipeline.ports import Decoder
from schemas.frame import Encoding

BATCH = 4
SIZES = ((854, 480, 256, 448), (1920, 1080, 384, 640), (3840, 2160, 384, 640))
"""Source width and height, bucket height and width."""


@dataclass
class Timing:
    """The best of all rounds, in milliseconds per picture."""

    decoder: Decoder
    rows: torch.Tensor
    wall_ms: float = field(default=float("inf"))
    cpu_ms: float = field(default=float("inf"))

    def run(self, items: Sequence[Item]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        refused = [error for error in self.decoder.decode(items, self.rows) if error]
        cpu_ms = (time.process_time() - cpu) * 1e3 / len(items)
        wall_ms = (time.perf_counter() - wall) * 1e3 / len(items)
        if refused:
            raise refused[0]
        self.cpu_ms = min(self.cpu_ms, cpu_ms)
        self.wall_ms = min(self.wall_ms, wall_ms)


def jpeg_item(pixels: np.ndarray, bucket: Bucket) -> Item:
    data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
    return frame_item(data, Encoding.JPEG, bucket)


def compare(name: str, item: Item, threads: int, rounds: int) -> str:
    """One line of the table."""
    shape = (BATCH, item.bucket.height, item.bucket.width, 3)
    timings = [
        Timing(decoder, torch.empty(shape, dtype=torch.uint8))
        for decoder in (OpenCvDecoder(threads=threads), DaliDecoder(threads=threads))
    ]
    for _ in range(rounds + 1):
        for timing in timings:
            timing.run([item] * BATCH)
    difference = (timings[0].rows.int() - timings[1].rows.int()).abs()
    cells = [f"{t.wall_ms:6.1f} ({t.cpu_ms:5.1f})" for t in timings]
    for timing in timings:
        timing.decoder.close()
    mean, most = difference.float().mean().item(), int(difference.max())
    return f"{name:<18} {cells[0]:>16} {cells[1]:>16} {mean:8.3f} {most:4d}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    photograph = cv2.imread(str(ASSETS / "zidane.jpg"))
    if photograph is None:
        raise FileNotFoundError("Ultralytics' photograph zidane.jpg is missing")
    print(f"{'ms wall (CPU)':<18} {'opencv':>16} {'dali-cpu':>16} {'mean':>8} {'max':>4}")
    for width, height, rows, columns in SIZES:
        bucket = Bucket(f"{rows}x{columns}", width * height, rows, columns, BATCH)
        scene = Scene(3, width, height).frame(1.0)[0]
        photo = cv2.resize(photograph, (width, height), interpolation=cv2.INTER_CUBIC)
        for kind, pixels in (("scene", scene), ("photo", photo)):
            item = jpeg_item(pixels, bucket)
            print(compare(f"{width}×{height} {kind}", item, options.threads, options.rounds))


if __name__ == "__main__":
    main()
