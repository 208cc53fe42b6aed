"""Whether two programs found the same boxes in the same frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Box = tuple[float, float, float, float, float, int]
"""x1, y1, x2, y2, score, class id."""
Frames = dict[tuple[str, int], Sequence[Box]]
"""Stream and `seq` → its boxes."""

ALIKE = 0.9
"""Overlap from which two boxes of one class are the same find."""
AT_THRESHOLD = 0.01
"""A box that one side alone found counts for neither where its score is no further above the least
score: rounding decides whether it is there."""


def agree(
    theirs: Mapping[tuple[str, int], Sequence[Box]],
    ours: Mapping[tuple[str, int], Sequence[Box]],
    conf: float,
) -> tuple[int, int, float]:
    """How many boxes were found by either, how many by both, and the least overlap (IoU) of two
    that count as one; 1.0 where there are none. Frames that one side lacks count with all boxes.

    Args:
        conf: the least score that both were asked for.
    """
    found, both, least = 0, 0, 1.0
    for frame in theirs.keys() | ours.keys():
        left = list(ours.get(frame, ()))
        lone: list[Box] = []
        for box in theirs.get(frame, ()):
            alike = [(overlap(box, other), other) for other in left if other[5] == box[5]]
            best = max(alike, default=(0.0, box))
            if best[0] < ALIKE:
                lone.append(box)
                continue
            both += 1
            least = min(least, best[0])
            left.remove(best[1])
        found += sum(box[4] > conf + AT_THRESHOLD for box in (*lone, *left))
    return found + both, both, least


def overlap(a: Box, b: Box) -> float:
    """Intersection over union, 0 to 1."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)
