"""Candidates of a whole batch and their non-maximum suppression, on the device of the predictions.

The rules are those of Ultralytics 8.4 (`ultralytics.utils.nms.non_max_suppression` with
`multi_label=False`, `agnostic=False`), so that results equal the reference call. Its code is not
used: it takes one picture at a time and leaves the rest of the batch empty once its time limit is
over. No state is kept: any thread may call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torchvision.ops import nms

CLASS_OFFSET = 7680.0
"""Pixels between the classes of a picture while boxes are compared (Ultralytics' `max_wh`)."""
MAX_CANDIDATES = 30_000
"""Most candidates of one picture, best scores first (Ultralytics' `max_nms`)."""
_CALL_LIMIT = {"cpu": 300, "cuda": 16_384}
"""Candidates per suppression call. Its cost grows with their square (on CUDA its memory too), so a
crowded batch goes in several calls of whole pictures. Measured on a CPU: docs/parity.md."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """k boxes that may be objects, of all pictures of a batch, on one device.

    Attributes:
        pictures: int64 (k,), the row in the batch.
        boxes: float32 (k, 4), x1, y1, x2, y2 in bucket pixels, finite.
        scores: float32 (k,), of the best class.
        classes: int64 (k,), the best class.
    """

    pictures: torch.Tensor
    boxes: torch.Tensor
    scores: torch.Tensor
    classes: torch.Tensor

    def __len__(self) -> int:
        return int(self.pictures.shape[0])

    def take(self, rows: torch.Tensor) -> Candidates:
        """The rows named by indices or a mask, in that order."""
        return Candidates(
            self.pictures[rows], self.boxes[rows], self.scores[rows], self.classes[rows]
        )


def find_candidates(
    raw: torch.Tensor, conf: float, classes: Sequence[int] | None = None
) -> Candidates:
    """Every anchor whose best class scores above `conf`, ordered by picture, then anchor.

    An anchor with NaN among its scores, or a box that is not finite, is no candidate: comparing it
    gives false whatever the other box, so it would survive as a detection without a place.

    Args:
        raw: float32 (n, 4 + classes, anchors): box centre x, centre y, width, height in bucket
            pixels, then class scores.
        conf: a score must be above it.
        classes: keep only anchors whose best class is one of these; None keeps all.
    """
    above = raw[:, 4:].amax(1) > conf
    pictures, anchors = above.nonzero(as_tuple=True)
    rows = raw[pictures, :, anchors]
    scores, best = rows[:, 4:].max(1)
    half = rows[:, 2:4] / 2
    boxes = torch.cat((rows[:, :2] - half, rows[:, :2] + half), 1)
    wanted = boxes.isfinite().all(1)
    if classes is not None:
        wanted &= torch.isin(best, torch.tensor(classes, device=best.device))
    return Candidates(pictures, boxes, scores, best).take(wanted)


def suppress(
    found: Candidates, n: int, iou: float, max_det: int, *, classes: int | None = None
) -> Candidates:
    """What remains of a batch's candidates, ordered by picture, then score, best first.

    Candidates of one class in one picture that overlap a better one by more than `iou` go. Boxes
    are compared in one plane, far apart by class and picture. The class offset is added in float32,
    as Ultralytics does, because its rounding decides close calls; the picture offset in float64,
    where it moves nothing that float32 could tell.

    Args:
        found: ordered by picture.
        n: pictures in the batch.
        iou: intersection over union, 0..1.
        max_det: most boxes per picture.
        classes: one more than the highest class id that can occur; None looks, which on a GPU
            costs a wait.
    """
    limit = _CALL_LIMIT[found.boxes.device.type]
    calls = [(0, len(found))]
    if len(found) > limit:  # the counts cost a copy back: only a crowded batch pays for it
        if len(found) > MAX_CANDIDATES:
            order = found.scores.argsort(descending=True, stable=True)
            found = _best(found, order, n, MAX_CANDIDATES)
        calls = _calls(found.pictures.bincount(minlength=n).tolist(), limit)
    plane, scores = _plane(found, classes), found.scores.double()
    kept = [nms(plane[start:stop], scores[start:stop], iou) + start for start, stop in calls]
    return _best(found, torch.cat(kept), n, max_det)


def _plane(found: Candidates, classes: int | None) -> torch.Tensor:
    """Boxes as float64 (k, 4) in the plane where classes and pictures lie apart.

    Wild boxes (broken weights) are held within one offset around their picture: they must not
    reach into another picture's place.
    """
    boxes = found.boxes.clamp(-CLASS_OFFSET, 2 * CLASS_OFFSET)
    apart = boxes + (found.classes.float() * CLASS_OFFSET)[:, None]
    if classes is None:
        classes = int(found.classes.max()) + 1 if len(found) else 0
    return apart.double() + (found.pictures.double() * ((classes + 3) * CLASS_OFFSET))[:, None]


def _calls(counts: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Split rows ordered by picture into [start, stop) of whole pictures with at most `limit` rows
    each, or a single picture with more."""
    calls: list[tuple[int, int]] = []
    start = stop = 0
    for count in counts:
        if stop > start and stop + count - start > limit:
            calls.append((start, stop))
            start = stop
        stop += count
    if stop > start:
        calls.append((start, stop))
    return calls


def _best(found: Candidates, order: torch.Tensor, n: int, limit: int) -> Candidates:
    """The first `limit` rows of each picture in `order`, regrouped by picture."""
    order = order[found.pictures[order].argsort(stable=True)]
    pictures = found.pictures[order]
    counts = pictures.bincount(minlength=n)
    rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[pictures]
    return found.take(order[rank < limit])
