"""Mean average precision of detections against drawn truth, over ten overlaps (0.5 to 0.95)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ultralytics.utils.metrics import ap_per_class

from bench.scene_match import overlap_of
from bench.scenes import MIN_VISIBLE, Truth
from schemas.result import Detection

OVERLAPS = tuple(0.5 + 0.05 * i for i in range(10))


@dataclass(slots=True)
class Precision:
    """Gathers pictures; `map50` and `map50_95` are Ultralytics' own figures, 0..1."""

    right: list[list[bool]] = field(default_factory=list[list[bool]])
    scores: list[float] = field(default_factory=list[float])
    classes: list[int] = field(default_factory=list[int])
    wanted: list[int] = field(default_factory=list[int])

    def add(self, truths: Sequence[Truth], detections: Sequence[Detection]) -> None:
        """One picture. Detections of barely visible objects are neither right nor wrong."""
        counted = [t for t in truths if t.visible >= MIN_VISIBLE]
        barely = [t for t in truths if t.visible < MIN_VISIBLE]
        self.wanted += [t.class_id for t in counted]
        free = [set(range(len(counted))) for _ in OVERLAPS]
        for found in sorted(detections, key=lambda d: -d.score):
            near = [
                (overlap_of(found.box, truth.box), i)
                for i, truth in enumerate(counted)
                if truth.class_id == found.class_id
            ]
            right: list[bool] = []
            for overlap, left in zip(OVERLAPS, free, strict=True):
                best = max((n for n in near if n[1] in left), default=(0.0, -1))
                right.append(best[0] >= overlap)
                if right[-1]:
                    left.discard(best[1])
            if not right[0] and _hits(found, barely):
                continue
            self.right.append(right)
            self.scores.append(found.score)
            self.classes.append(found.class_id)

    def figures(self) -> tuple[float, float]:
        """mAP50 and mAP50-95, 0..1."""
        result: Any = ap_per_class(
            np.asarray(self.right, bool).reshape(-1, len(OVERLAPS)),
            np.asarray(self.scores),
            np.asarray(self.classes),
            np.asarray(self.wanted),
        )
        ap: Any = result[5]
        return float(ap[:, 0].mean()), float(ap.mean())


def _hits(found: Detection, truths: Sequence[Truth]) -> bool:
    return any(
        truth.class_id == found.class_id and overlap_of(found.box, truth.box) >= OVERLAPS[0]
        for truth in truths
    )
