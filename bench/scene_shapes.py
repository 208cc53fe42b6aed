"""What moves in a drawn scene: painted polygons with exact outlines.

A shape is a list of `Part`s in metres. It faces right, stands centred on x = 0 with the ground at
y = 0, and y grows upwards. Parts are painted in order. The outline of a shape is the union of its
parts, so its extent is exact; shadows and lights are the scene's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]
Colour = tuple[float, float, float]
"""Blue, green, red in 0..255, as OpenCV orders them."""

TYRE: Colour = (38, 34, 34)
HUB: Colour = (186, 184, 182)

BODY_COLOURS: tuple[Colour, ...] = (
    (62, 58, 200),
    (178, 104, 42),
    (236, 234, 230),
    (70, 66, 66),
    (60, 170, 232),
    (120, 140, 60),
    (172, 166, 160),
    (96, 60, 128),
    (150, 176, 90),
    (58, 112, 222),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One painted polygon: `points` (n, 2) float64 metres.

    `lit` parts shine by themselves at dusk; `inner` ones lie on parts painted before them and add
    nothing to the outline.
    """

    points: Points
    colour: Colour
    lit: bool = False
    inner: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """How one object looks for as long as it is in the scene; `paint(phase)` gives its parts.

    `length` and `height` are nominal metres. `phase` is how far it walked or pedalled, in radians:
    metres gone times `pace`; a whole turn brings the same parts again. `headlight` is where it
    shines forward from, in metres.
    """

    class_id: int
    length: float
    height: float
    paint: Callable[[float], list[Part]]
    pace: float = 0.0
    headlight: tuple[float, float] | None = None


def shade(colour: Colour, factor: float) -> Colour:
    """Darker (factor below 1) or lighter (above 1: that much of the way to white)."""
    if factor <= 1.0:
        return (colour[0] * factor, colour[1] * factor, colour[2] * factor)
    return mix(colour, (255, 255, 255), factor - 1.0)


def mix(a: Colour, b: Colour, share: float) -> Colour:
    """`share` (0..1) of the way from a to b."""
    keep = 1.0 - share
    return (a[0] * keep + b[0] * share, a[1] * keep + b[1] * share, a[2] * keep + b[2] * share)


def soften(points: Sequence[tuple[float, float]], radius: float, steps: int = 4) -> Points:
    """The polygon with each corner replaced by a curve that starts `radius` before it."""
    curve: list[tuple[float, float]] = []
    for i, (x, y) in enumerate(points):
        ends: list[tuple[float, float]] = []
        for ox, oy in (points[i - 1], points[(i + 1) % len(points)]):
            dx, dy = ox - x, oy - y
            reach = min(radius / max(math.hypot(dx, dy), 1e-9), 0.5)
            ends.append((x + dx * reach, y + dy * reach))
        (ax, ay), (bx, by) = ends
        for step in range(steps):
            k = step / (steps - 1)
            p, q, r = (1 - k) * (1 - k), 2 * k * (1 - k), k * k
            curve.append((p * ax + q * x + r * bx, p * ay + q * y + r * by))
    return np.array(curve)


def box(x0: float, y0: float, x1: float, y1: float, radius: float = 0.0) -> Points:
    """A rectangle, its corners rounded when `radius` is above 0."""
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    return soften(corners, radius) if radius > 0 else np.asarray(corners, np.float64)


def disc(x: float, y: float, radius: float, corners: int = 22) -> Points:
    """A circle as a polygon."""
    return _circle(corners) * radius + (x, y)


@lru_cache
def _circle(corners: int) -> Points:
    angle = np.linspace(0.0, 2 * math.pi, corners, endpoint=False)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def ring(x: float, y: float, radius: float, width: float) -> Points:
    """A hoop: one polygon that runs round the outside and back along the inside."""
    way = np.concatenate([_circle(22), _circle(22)[:1]])
    hoop = np.concatenate([way * radius, way[::-1] * (radius - width)])
    return hoop + np.asarray((x, y))


def limb(a: tuple[float, float], b: tuple[float, float], width: float) -> Points:
    """A thick line from a to b with rounded ends inside its length."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = max(math.hypot(dx, dy), 1e-9)
    nx, ny = -dy / length * width / 2, dx / length * width / 2
    corners = [
        (a[0] + nx, a[1] + ny),
        (b[0] + nx, b[1] + ny),
        (b[0] - nx, b[1] - ny),
        (a[0] - nx, a[1] - ny),
    ]
    return soften(corners, width * 0.35, 3)
