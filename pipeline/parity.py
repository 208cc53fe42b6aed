"""Parity: a backend's boxes against those of torch in float32, on a few fixed pictures.

Compared are anchors: of every picture the best ones, all that score above the threshold among them,
before suppression. So a comparison is never void, even for weights that know nothing of what is on
the pictures, and no close call of the suppression is mistaken for a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from pipeline.exported import Answer, Answers, Shape
from pipeline.parity_pictures import digest, frames_at
from pipeline.ports import Model

CONF = 0.25
"""Anchors above it are candidates for detections: the routes' default."""
LEAST = 50
"""Anchors of a picture that are compared even when fewer are candidates."""
MOST = 300
"""Anchors of a picture that are compared."""
_BLUR_PX = 0.5
"""Boxes whose corners lie nearer than this are alike, however small they are."""

Boxes = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a backend may be from torch in float32.

    Attributes:
        iou: least overlap of a box with its own, 0..1.
        score: largest difference of their scores.
    """

    iou: float
    score: float


FULL = Limits(iou=0.99, score=0.01)
"""Of backends that run in float32: those of docs/parity.md."""
HALF = Limits(iou=0.9, score=0.03)
"""Of backends that run in float16; docs/performance.md says what was measured."""


@dataclass(frozen=True, slots=True)
class Parity:
    """How far a backend is from torch in float32.

    Attributes:
        candidates: anchors compared that score above `CONF`.
        anchors: all anchors compared.
        iou: the least overlap of a box with its own.
        score: the largest difference of two scores of one anchor.
        strangers: anchors that should score below `CONF` and are further above than `score` of
            the limits allows.
    """

    candidates: int
    anchors: int
    iou: float
    score: float
    strangers: int

    def within(self, limits: Limits) -> bool:
        """Whether a backend may serve."""
        return (
            self.anchors > 0
            and self.iou >= limits.iou
            and self.score <= limits.score
            and not self.strangers
        )

    def __str__(self) -> str:
        return (
            f"least IoU {self.iou:.4f}, largest score difference {self.score:.2g} over "
            f"{self.anchors} anchors ({self.candidates} above {CONF:g}), {self.strangers} strangers"
        )


def limits_of(backend: str) -> Limits:
    """By the name that `ModelInfo.backend` carries."""
    return HALF if backend.endswith("-fp16") else FULL


def reference_shapes(shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Of the shapes those to compare at: the smallest wide (or square) one and the smallest tall
    one. A grid that takes height for width shows in any of a kind."""
    by_size = sorted(shapes, key=lambda s: s.height * s.width)
    wide = [s for s in by_size if s.width >= s.height]
    tall = [s for s in by_size if s.width < s.height]
    return (*wide[:1], *tall[:1])


def answers_of(model: Model, shapes: Iterable[Shape]) -> tuple[Answers, ...]:
    """What the model (torch in float32) answers for the pictures at these shapes."""
    found: list[Answers] = []
    for shape in shapes:
        raw = _predictions(model, shape)
        rows = tuple(_best(row) for row in raw)
        found.append(Answers(shape.height, shape.width, CONF, digest(), rows))
    return tuple(found)


def compare(model: Model, expected: Sequence[Answers], limits: Limits, batch: int = 4) -> Parity:
    """Run the model on the pictures and compare.

    Args:
        expected: for shapes that the model serves, at least one.
        limits: what counts as a stranger.
        batch: pictures in one call, at most.
    """
    parts: list[Parity] = []
    for answers in expected:
        shape = Shape(answers.height, answers.width, batch)
        raw = _predictions(model, shape)
        parts += [
            _difference(answer, row, answers.conf, limits)
            for answer, row in zip(answers.rows, raw, strict=True)
        ]
    return Parity(
        candidates=sum(part.candidates for part in parts),
        anchors=sum(part.anchors for part in parts),
        iou=min((part.iou for part in parts), default=0.0),
        score=max((part.score for part in parts), default=1.0),
        strangers=sum(part.strangers for part in parts),
    )


def comparable(expected: Sequence[Answers]) -> bool:
    """Whether there is anything to compare with, and the pictures are those it was made with."""
    return bool(expected) and all(answers.pictures == digest() for answers in expected)


def _predictions(model: Model, shape: Shape) -> Boxes:
    """float64 (pictures, 4 + classes, anchors), in batches as large as the shape admits."""
    frames = frames_at(shape.height, shape.width)
    step = max(min(shape.max_batch, len(frames)), 1)
    parts = [
        model.infer(frames[start : start + step].to(model.device)).cpu()
        for start in range(0, len(frames), step)
    ]
    return torch.cat(parts).double().numpy()


def _best(row: Boxes) -> Answer:
    scores = row[4:].max(axis=0)
    above = int((scores > CONF).sum())
    order = np.argsort(-scores, kind="stable")[: min(max(above, LEAST), MOST)]
    boxes: list[list[float]] = _corners(row[:4, order]).round(3).tolist()
    return Answer(
        anchors=tuple(int(a) for a in order),
        classes=tuple(int(c) for c in row[4:, order].argmax(axis=0)),
        scores=tuple(round(float(s), 6) for s in scores[order]),
        boxes=tuple((x1, y1, x2, y2) for x1, y1, x2, y2 in boxes),
        above=above,
    )


def _difference(answer: Answer, row: Boxes, conf: float, limits: Limits) -> Parity:
    anchors = np.array(answer.anchors, np.intp)
    expected = np.array(answer.scores)
    if not np.isfinite(row).all() or anchors.max(initial=0) >= row.shape[1]:
        return Parity(int((expected > conf).sum()), len(anchors), 0.0, 1.0, 0)
    score = np.abs(row[4 + np.array(answer.classes, np.intp), anchors] - expected)
    mine = row[4:].max(axis=0)
    others = np.ones(row.shape[1], bool)
    others[anchors] = False
    # What was cut off by `MOST` may well be above the threshold.
    bound = conf + limits.score if answer.above <= MOST else 1.0
    return Parity(
        candidates=int((expected > conf).sum()),
        anchors=len(anchors),
        iou=float(_overlaps(np.array(answer.boxes), _corners(row[:4, anchors])).min(initial=1.0)),
        score=float(score.max(initial=0.0)),
        strangers=int((mine[others] > bound).sum()),
    )


def _corners(boxes: Boxes) -> Boxes:
    """(4, k) centre x, centre y, width, height → (k, 4) x1, y1, x2, y2."""
    half = boxes[2:] / 2
    return np.concatenate((boxes[:2] - half, boxes[:2] + half)).T


def _overlaps(a: Boxes, b: Boxes) -> Boxes:
    """Intersection over union of each pair of rows, (k,); 1 where the corners hardly differ."""
    sides = np.clip(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]), 0.0, None)
    both = sides.prod(axis=1)
    union = (a[:, 2:] - a[:, :2]).prod(axis=1) + (b[:, 2:] - b[:, :2]).prod(axis=1) - both
    overlaps = np.divide(both, union, out=np.zeros_like(both), where=union > 0)
    return np.where(np.abs(a - b).max(axis=1) <= _BLUR_PX, 1.0, overlaps)
