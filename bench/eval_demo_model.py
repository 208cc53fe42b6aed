"""Judge the demo model on held-out scenes: `python -m bench.eval_demo_model`.

For each source size and the shape that the demo gives it: mAP50 (Ultralytics' average precision
over detections down to confidence 0.001), and recall and precision by `bench.scenes.match` at
confidence 0.25. Pictures go through JPEG, as in the demo, and through `YOLO.predict`, so the worker
is not needed.
"""

from __future__ import annotations

import os
import tempfile

# Ultralytics reads these when it is imported; training and judging never need the network.
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_CONFIG_DIR", f"{tempfile.gettempdir()}/frameloom-ultralytics")

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from ultralytics import YOLO
from ultralytics.utils.metrics import ap_per_class

from bench.scene_backdrop import Picture
from bench.scene_match import overlap_of
from bench.scenes import CLASSES, HELD_OUT, MIN_VISIBLE, Box, Match, Scene, Truth, match

WEIGHTS = Path(__file__).parent / "assets" / "frameloom-demo.pt"
CONF = 0.25

CASES: tuple[tuple[tuple[int, int], tuple[int, int]], ...] = (
    ((854, 480), (256, 448)),
    ((640, 480), (256, 448)),
    ((480, 854), (448, 256)),
    ((1920, 1080), (384, 640)),
    ((1080, 1920), (640, 384)),
)
"""Source (width, height) and the letterbox target (height, width) of its bucket in the demo."""

Detection = tuple[Box, float, int]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one case came to; `ap50` per class that occurred, 0..1."""

    pictures: int
    ap50: dict[str, float]
    counts: Match

    @property
    def map50(self) -> float:
        """The mean of `ap50`."""
        return sum(self.ap50.values()) / max(len(self.ap50), 1)


class Tally:
    """Gathers detections and truths of many pictures for average precision at IoU 0.5."""

    def __init__(self) -> None:
        self._right: list[bool] = []
        self._scores: list[float] = []
        self._classes: list[int] = []
        self._wanted: list[int] = []
        self._counts = Match()
        self._pictures = 0

    def add(self, truths: Sequence[Truth], detections: Sequence[Detection]) -> None:
        """One picture; detections of barely visible objects are neither right nor wrong."""
        self._pictures += 1
        self._counts += match(truths, [d for d in detections if d[1] >= CONF])
        counted = [t for t in truths if t.visible >= MIN_VISIBLE]
        barely = [t for t in truths if t.visible < MIN_VISIBLE]
        self._wanted += [t.class_id for t in counted]
        free = set(range(len(counted)))
        for box, score, class_id in sorted(detections, key=lambda d: -d[1]):
            fits = [
                (overlap_of(box, counted[i].box), i)
                for i in free
                if counted[i].class_id == class_id
            ]
            overlap, best = max(fits, default=(0.0, -1))
            right = overlap >= 0.5
            if right:
                free.discard(best)
            elif any(t.class_id == class_id and overlap_of(box, t.box) >= 0.5 for t in barely):
                continue
            self._right.append(right)
            self._scores.append(score)
            self._classes.append(class_id)

    def figures(self) -> Figures:
        """The figures so far."""
        result: Any = ap_per_class(
            np.asarray(self._right, bool)[:, None],
            np.asarray(self._scores),
            np.asarray(self._classes),
            np.asarray(self._wanted),
        )
        ap, present = result[5], result[6]
        ap50 = {CLASSES[int(c)]: float(v[0]) for c, v in zip(present, ap, strict=True)}
        return Figures(self._pictures, ap50, self._counts)


def load(path: Path = WEIGHTS) -> YOLO:
    """The model, by Ultralytics."""
    return YOLO(path, task="detect")


def detect(
    model: YOLO, picture: Picture, shape: tuple[int, int], conf: float = CONF
) -> list[Detection]:
    """Ultralytics' detections in one picture, letterboxed into `shape` (height, width)."""
    predict: Any = model.predict
    found: Any = predict(
        picture,
        imgsz=shape,
        rect=False,
        conf=conf,
        iou=0.7,
        max_det=300,
        verbose=False,
        device="cpu",
    )[0].boxes
    rows = zip(found.xyxy.tolist(), found.conf.tolist(), found.cls.tolist(), strict=True)
    return [((b[0], b[1], b[2], b[3]), float(s), int(c)) for b, s, c in rows]


def photographed(picture: Picture, quality: int = 85) -> Picture:
    """The picture after JPEG."""
    coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)


def judge(
    model: YOLO, size: tuple[int, int], shape: tuple[int, int], scenes: int, frames: int
) -> Figures:
    """Figures over `frames` moments of each of `scenes` held-out scenes."""
    tally = Tally()
    for i in range(scenes):
        scene = Scene(HELD_OUT + i, *size)
        for k in range(frames):
            picture, truths = scene.frame(3.0 + 17.0 * k + i)
            tally.add(truths, detect(model, photographed(picture), shape, conf=0.001))
    return tally.figures()


def main() -> None:
    """Parse the command line, judge, print a table."""
    parser = argparse.ArgumentParser(description="Judge the demo model on held-out scenes.")
    parser.add_argument("--model", type=Path, default=WEIGHTS)
    parser.add_argument("--scenes", type=int, default=60)
    parser.add_argument("--frames", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    model = load(asked.model)
    total = Match()
    print(f"{'source':>10} {'shape':>8} pictures  mAP50  recall  precision  per class")
    for size, shape in CASES:
        got = judge(model, size, shape, asked.scenes, asked.frames)
        total += got.counts
        each = " ".join(f"{name} {value:.3f}" for name, value in got.ap50.items())
        source, target = f"{size[0]}x{size[1]}", f"{shape[0]}x{shape[1]}"
        print(
            f"{source:>10} {target:>8} {got.pictures:>8}  {got.map50:.3f}"
            f"  {got.counts.recall:.3f}   {got.counts.precision:.3f}      {each}",
            flush=True,
        )
    print(f"all: recall {total.recall:.3f}, precision {total.precision:.3f} ({total})")


if __name__ == "__main__":
    main()
