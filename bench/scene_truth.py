"""What can be seen of each object of a drawn frame."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from bench.scene_match import Box, Truth
from bench.scene_traffic import MAP_UNIT, Placed

Span = tuple[int, int, int, int]


class TruthMap:
    """Outlines painted over one another in a small map, one number per object.

    A side of a box that can be seen is exact, from the outline itself; a side that is hidden lies
    where the map says the view ends (a cell is 1/360 of the picture's shorter side).
    """

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = float(width), float(height)
        self._scale = MAP_UNIT / min(width, height)
        rows, columns = round(height * self._scale), round(width * self._scale)
        self._owner: npt.NDArray[np.uint16] = np.zeros((rows, columns), np.uint16)

    def truths(self, placed: Sequence[Placed]) -> list[Truth]:
        """The truth of objects painted in this order; those wholly hidden are left out."""
        self._owner[:] = 0
        alone: list[tuple[int, Span] | None] = []
        for number, thing in enumerate(placed, start=1):
            for cells, part in zip(thing.cells, thing.parts, strict=True):
                if not part.inner:
                    cv2.fillPoly(self._owner, [cells], (number,), cv2.LINE_8, 4)
            alone.append(self._seen(thing.extent, number))
        truths: list[Truth] = []
        for number, (thing, whole) in enumerate(zip(placed, alone, strict=True), start=1):
            now = self._seen(thing.extent, number)
            if whole is not None and now is not None:
                truths.append(self._truth(thing, whole, now))
        return [t for t in truths if t.box[0] < t.box[2] and t.box[1] < t.box[3]]

    def _truth(self, thing: Placed, whole: tuple[int, Span], now: tuple[int, Span]) -> Truth:
        x1, y1, x2, y2 = thing.extent
        wide = min(x2, self._width) - max(x1, 0.0)
        tall = min(y2, self._height) - max(y1, 0.0)
        inside = wide * tall / ((x2 - x1) * (y2 - y1))
        exact = thing.extent if inside == 1.0 else self._cut_extent(thing)
        left, top, right, low = (
            side if seen == full else seen / self._scale
            for side, seen, full in zip(exact, now[1], whole[1], strict=True)
        )
        box = (
            max(left, exact[0]),
            max(top, exact[1]),
            min(right, exact[2]),
            min(low, exact[3]),
        )
        return Truth(box, thing.look.class_id, now[0] / whole[0] * inside, thing.object_id)

    def _cut_extent(self, thing: Placed) -> Box:
        """The extent of what is left of an outline that the picture's border cuts."""
        x1, y1, x2, y2 = thing.extent
        borders = (
            (x1 < 0, 0, 1.0, 0.0),
            (x2 > self._width, 0, -1.0, self._width),
            (y1 < 0, 1, 1.0, 0.0),
            (y2 > self._height, 1, -1.0, self._height),
        )
        kept: list[npt.NDArray[np.float64]] = []
        for points, part in zip(thing.points, thing.parts, strict=True):
            if part.inner:
                continue
            polygon = points / 16.0 + 0.5
            for cuts, axis, sign, limit in borders:
                if cuts:
                    polygon = _halved(polygon, axis, sign, limit)
            kept.append(polygon)
        corners = np.concatenate(kept)
        if len(corners) == 0:  # less than the points' precision is left
            corners = np.reshape(thing.extent, (2, 2))
        corners = np.clip(corners, 0.0, (self._width, self._height))
        (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
        return (float(x0), float(y0), float(x1), float(y1))

    def _seen(self, extent: Box, number: int) -> tuple[int, Span] | None:
        """How many cells an object owns, and their span in cells."""
        k = self._scale
        x0, y0 = max(int(extent[0] * k) - 1, 0), max(int(extent[1] * k) - 1, 0)
        x1, y1 = math.ceil(extent[2] * k) + 1, math.ceil(extent[3] * k) + 1
        mine = self._owner[y0:y1, x0:x1] == number
        columns, rows = np.flatnonzero(mine.any(axis=0)), np.flatnonzero(mine.any(axis=1))
        if columns.size == 0:
            return None
        span = (x0 + columns[0], y0 + rows[0], x0 + columns[-1] + 1, y0 + rows[-1] + 1)
        return int(np.count_nonzero(mine)), (int(span[0]), int(span[1]), int(span[2]), int(span[3]))


def _halved(
    polygon: npt.NDArray[np.float64], axis: int, sign: float, limit: float
) -> npt.NDArray[np.float64]:
    """The corners (n, 2) of the part of a polygon where sign × coordinate + limit is at least 0.

    One step of Sutherland and Hodgman's clipping (1974).
    """
    depth = polygon[:, axis] * sign + limit
    if (depth >= 0).all():
        return polygon
    if (depth < 0).all():
        return polygon[:0]
    after, depth_after = np.roll(polygon, -1, axis=0), np.roll(depth, -1)
    crosses = (depth < 0) != (depth_after < 0)
    share = np.divide(depth, depth - depth_after, out=np.zeros_like(depth), where=crosses)
    crossing = polygon + share[:, None] * (after - polygon)
    both = np.stack([polygon, crossing], axis=1).reshape(-1, 2)
    return both[np.stack([depth >= 0, crosses], axis=1).ravel()]
