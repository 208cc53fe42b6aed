"""Exact truth of a drawn scene, and the comparison of detections with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 in displayed source pixels; edges, not pixel centres."""

MIN_VISIBLE = 0.35
"""An object of which less can be seen is neither missed nor, if found, wrong."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One object in one frame.

    `box` spans what can be seen of the object: clipped to the picture, and drawn in where something
    stands before a whole side of it. `visible` is the share (0..1) of the object that is inside the
    picture and not occluded. `object_id` is stable over the scene's frames.
    """

    box: Box
    class_id: int
    visible: float
    object_id: int


@dataclass(frozen=True, slots=True)
class Match:
    """Counts of one comparison; add them up over pictures with `+`."""

    tp: int = 0
    fp: int = 0
    fn: int = 0
    ignored: int = 0

    def __add__(self, other: Match) -> Match:
        return Match(
            self.tp + other.tp, self.fp + other.fp, self.fn + other.fn, self.ignored + other.ignored
        )

    @property
    def recall(self) -> float:
        """Share of the objects found, 0..1; 1 when there were none."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 1.0

    @property
    def precision(self) -> float:
        """Share of the detections that are right, 0..1; 1 when there were none."""
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 1.0


def overlap_of(a: Box, b: Box) -> float:
    """Intersection over union of two boxes, 0..1."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    tall = min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0.0 or tall <= 0.0:
        return 0.0
    inter = wide * tall
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def match(
    truths: Sequence[Truth],
    detections: Sequence[tuple[Box, float, int]],
    iou: float = 0.5,
    min_visible: float = MIN_VISIBLE,
) -> Match:
    """Pair detections (box, score, class_id) with truths of their class, best score first.

    Each truth is taken once: by the first detection that overlaps it by `iou` or more and overlaps
    no other free one more. Truths that count go before barely visible ones (less than
    `min_visible`, 0..1): those are neither missed nor, if found, wrong. `ignored` counts them.
    """
    free = set(range(len(truths)))
    tp = fp = 0
    for box, _, class_id in sorted(detections, key=lambda d: -d[1]):
        best: tuple[bool, float, int] | None = None
        for i in free:
            truth = truths[i]
            overlap = overlap_of(box, truth.box) if truth.class_id == class_id else 0.0
            if overlap >= iou:
                candidate = (truth.visible >= min_visible, overlap, i)
                best = candidate if best is None else max(best, candidate)
        if best is None:
            fp += 1
            continue
        free.discard(best[2])
        tp += best[0]
    counted = sum(t.visible >= min_visible for t in truths)
    return Match(tp, fp, counted - tp, len(truths) - counted)
