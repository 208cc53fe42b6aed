"""Parity with Ultralytics, picture by picture: `python -m bench.parity`.

The reference is `YOLO.predict(bgr, imgsz=(height, width), rect=False)` on one fully decoded
picture. Ours is the worker's own way: `OpenCvDecoder` → `YoloModel.infer` → `YoloPostprocessor`,
alone and in mixed batches. Both start from the same encoded bytes.
`tests/contract/test_parity.py` holds what this prints to its limits.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

# Before Ultralytics itself: it keeps Ultralytics off the network.
from pipeline.model import YoloModel, load_model  # isort: skip
from ultralytics import YOLO

from bench.frame_item import frame_item
from bench.parity_pictures import Sample, photographs, samples
from bench.random_weights import write_random_yolov8
from pipeline.bucket import Bucket
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.postprocess import YoloPostprocessor
from schemas.result import Detection

CONF, IOU, MAX_DET = 0.25, 0.7, 300
"""The route's defaults, and the reference's."""
DEMO_WEIGHTS = Path(__file__).parent / "assets" / "frameloom-demo.pt"
_CORNER_PX = 0.05
"""How far the corners of two equal empty boxes may lie apart."""

BUCKETS = (
    Bucket("480p", 420_000, 256, 448, 16),
    Bucket("480p-portrait", 420_000, 448, 256, 16),
    Bucket("1080p", 2_100_000, 384, 640, 16),
    Bucket("1080p-portrait", 2_100_000, 640, 384, 16),
    Bucket("square", 50_000_000, 640, 640, 8),
)
"""The default buckets' shapes (4k has those of 1080p) and Ultralytics' own square."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One picture's answer against its reference.

    Attributes:
        expected, found: boxes in the reference and in ours.
        iou: the least overlap of a reference box with its own in ours, 1 where there is no box.
        score: the largest difference of their scores.
    """

    expected: int
    found: int
    iou: float
    score: float

    @property
    def void(self) -> bool:
        """The reference has no box, so nothing was compared."""
        return self.expected == 0


@dataclass(slots=True)
class Tally:
    """All comparisons of one bucket."""

    bucket: Bucket
    differences: list[Difference] = field(default_factory=list[Difference])

    @property
    def voids(self) -> int:
        return sum(d.void for d in self.differences)

    @property
    def miscounts(self) -> int:
        return sum(d.expected != d.found for d in self.differences)

    @property
    def boxes(self) -> int:
        return sum(d.expected for d in self.differences)

    @property
    def iou(self) -> float:
        return min((d.iou for d in self.differences), default=0.0)

    @property
    def score(self) -> float:
        return max((d.score for d in self.differences), default=1.0)


class Worker:
    """The worker's way from encoded pictures to detections, without Kafka and threads."""

    def __init__(self, model: YoloModel) -> None:
        self._model = model
        self._decoder = OpenCvDecoder()
        self._postprocessor = YoloPostprocessor(model.labels, conf=CONF, iou=IOU, max_det=MAX_DET)

    def answers(self, batch: Sequence[Sample], bucket: Bucket) -> list[tuple[Detection, ...]]:
        """Detections of each picture, all in one batch."""
        items = [frame_item(sample.data, sample.encoding, bucket) for sample in batch]
        frames = torch.empty((len(items), bucket.height, bucket.width, 3), dtype=torch.uint8)
        for error in self._decoder.decode(items, frames):
            if error is not None:
                raise error
        raw = self._model.infer(frames)
        return self._postprocessor.detections(raw, [item.geometry for item in items])


class Reference:
    """Ultralytics' own answers, one picture at a time, each computed once."""

    def __init__(self, weights: Path, device: str) -> None:
        self._yolo = YOLO(weights)
        self._device = device
        self._known: dict[tuple[str, str], tuple[Detection, ...]] = {}

    def answer(self, sample: Sample, bucket: Bucket) -> tuple[Detection, ...]:
        """Boxes in displayed source pixels, best first."""
        key = (sample.name, bucket.name)
        if key not in self._known:
            self._known[key] = self._predict(sample, bucket)
        return self._known[key]

    def _predict(self, sample: Sample, bucket: Bucket) -> tuple[Detection, ...]:
        picture = cv2.imdecode(np.frombuffer(sample.data, np.uint8), cv2.IMREAD_COLOR)
        results: Any = self._yolo.predict(
            picture,
            imgsz=(bucket.height, bucket.width),
            rect=False,
            conf=CONF,
            iou=IOU,
            max_det=MAX_DET,
            device=self._device,
            verbose=False,
        )
        names: dict[int, str] = results[0].names
        rows: list[list[float]] = results[0].boxes.data.tolist()
        return tuple(
            Detection((x1, y1, x2, y2), score, int(class_id), names[int(class_id)])
            for x1, y1, x2, y2, score, class_id in rows
        )


def measure(
    weights: Path, bucket: Bucket, pictures: Sequence[Sample], device: str = "cpu"
) -> Tally:
    """Compare every picture alone, then all of them in mixed batches, in one bucket."""
    worker = Worker(load_model(str(weights), device=device, conf=CONF, iou=IOU))
    reference = Reference(weights, device)
    tally = Tally(bucket)
    for batch in batches(pictures, bucket.max_batch):
        answers = worker.answers(batch, bucket)
        for sample, answer in zip(batch, answers, strict=True):
            tally.differences.append(compare(reference.answer(sample, bucket), answer))
    return tally


def batches(pictures: Sequence[Sample], largest: int) -> Iterator[list[Sample]]:
    """Each picture alone, then one batch each of 2, 3, largest - 1 and largest.

    The batches go on where the one before ended, so pictures meet others at other rows.
    """
    for sample in pictures:
        yield [sample]
    start = 0
    for size in (2, 3, largest - 1, largest):
        yield [pictures[(start + i) % len(pictures)] for i in range(size)]
        start += size


def compare(expected: Sequence[Detection], found: Sequence[Detection]) -> Difference:
    """Give each reference box the best overlapping box of its class that is still free."""
    free = list(found)
    worst_iou, worst_score = 1.0, 0.0
    for detection in expected:
        mine = max(free, key=lambda other: _alike(detection, other), default=None)
        if mine is None:
            break
        free.remove(mine)
        worst_iou = min(worst_iou, _alike(detection, mine))
        worst_score = max(worst_score, abs(detection.score - mine.score))
    return Difference(len(expected), len(found), worst_iou, worst_score)


def _alike(a: Detection, b: Detection) -> float:
    """Intersection over union; 0 for another class or label.

    A box in the padding is clipped to an empty one, which has no IoU: there the corners decide.
    """
    if (a.class_id, a.label) != (b.class_id, b.label):
        return 0.0
    if _area(a) == 0.0:
        away = max(abs(p - q) for p, q in zip(a.box, b.box, strict=True))
        return 1.0 if away <= _CORNER_PX else 0.0
    width = min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
    height = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    both = max(width, 0.0) * max(height, 0.0)
    return both / (_area(a) + _area(b) - both)


def _area(detection: Detection) -> float:
    x1, y1, x2, y2 = detection.box
    return (x2 - x1) * (y2 - y1)


def _print_table(title: str, weights: Path, pictures: Sequence[Sample], device: str) -> bool:
    """Measure and print one model; True when it keeps to the limits."""
    version = load_model(str(weights), device=device, conf=CONF, iou=IOU).info.version
    print(f"\n**{title}** (weights {version}, {device})\n")
    print("| bucket | tensor | pictures | boxes | miscounts | voids | least IoU | score diff |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    good = True
    for bucket in BUCKETS:
        tally = measure(weights, bucket, pictures, device)
        good &= not (tally.miscounts or tally.voids) and tally.iou >= 0.99 and tally.score <= 0.01
        print(
            f"| {bucket.name} | {bucket.height}×{bucket.width} | {len(tally.differences)} "
            f"| {tally.boxes} | {tally.miscounts} | {tally.voids} | {tally.iou:.6f} "
            f"| {tally.score:.1e} |",
            flush=True,
        )
    return good


def main() -> int:
    """Print the tables; 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description="Parity with Ultralytics.")
    parser.add_argument("--model", type=Path, default=DEMO_WEIGHTS, help="detection weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-random", action="store_true", help="leave random YOLOv8n out")
    asked = parser.parse_args()
    good = _print_table(asked.model.name, asked.model, samples(), asked.device)
    if not asked.no_random:
        with tempfile.TemporaryDirectory() as folder:
            weights = write_random_yolov8(Path(folder) / "random.pt")
            pictures = (*photographs(), *samples())
            good &= _print_table("YOLOv8n, random weights", weights, pictures, asked.device)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
