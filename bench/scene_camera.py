"""Light and sensor of a drawn scene: soft shadows, headlights, daylight that drifts, noise."""

from __future__ import annotations

import math

import cv2
import numpy as np
import numpy.typing as npt

from bench.scene_backdrop import Picture
from bench.scene_match import Box
from bench.scene_shapes import Colour

_ROOM = 61
_TILE = (251, 257, 1)
_CHANNEL_NOISE = np.asarray([1.1, 0.9, 1.0], np.float32)

SoftDisc = npt.NDArray[np.float32]


def _soft_disc(reach: float) -> SoftDisc:
    y, x = np.mgrid[-1:1:48j, -1:1:128j]
    away = np.sqrt(x * x + y * y)
    return np.clip((1.0 - away) / reach, 0.0, 1.0).astype(np.float32)


HALO = _soft_disc(1.0) ** 2
SHADOW = _soft_disc(0.45)
"""(48, 128) float32 in 0..1, falling to 0 at the rim; stretched over the area it is laid on."""


class Camera:
    """Exposes pictures of one size; noise and drift follow from the seed and the time."""

    def __init__(self, seed: int, width: int, height: int) -> None:
        self._seed, self._width, self._height = seed, width, height
        self._light = np.random.default_rng([seed, 3]).uniform(0.0, 2 * math.pi, 3)
        self._grain = float(np.random.default_rng([seed, 4]).uniform(1.5, 5.0))
        self._noise: tuple[Picture, Picture] | None = None

    def expose(self, picture: Picture, t: float) -> None:
        """Let daylight drift, then add the sensor's noise, in place."""
        a, b, c = self._light
        level = 1.0 + 0.05 * math.sin(t * 0.21 + a) + 0.02 * math.sin(t * 0.83 + b)
        warm = 0.025 * math.sin(t * 0.13 + c)
        gains = np.asarray([level - warm, level, level + warm])
        table = np.clip(np.arange(256)[:, None] * gains[None] + 0.5, 0, 255).astype(np.uint8)
        cv2.LUT(picture, table[None], picture)
        place = np.random.default_rng([self._seed, 8, abs(round(t * 1e6))])
        y, x = (int(v) for v in place.integers(0, _ROOM, 2))
        more, less = self._noise_planes()
        cv2.add(picture, more[y : y + self._height, x : x + self._width], picture)
        cv2.subtract(picture, less[y : y + self._height, x : x + self._width], picture)

    def _noise_planes(self) -> tuple[Picture, Picture]:
        """What to add and what to take away, a little larger than the picture; drawn once."""
        if self._noise is None:
            rng = np.random.default_rng([self._seed, 7])
            tile = rng.standard_normal(_TILE, np.float32) * self._grain * _CHANNEL_NOISE
            self._noise = (self._tiled(tile), self._tiled(-tile))
        return self._noise

    def _tiled(self, tile: npt.NDArray[np.float32]) -> Picture:
        height, width = self._height + _ROOM, self._width + _ROOM
        repeats = (-(-height // tile.shape[0]), -(-width // tile.shape[1]), 1)
        whole = np.tile(np.clip(tile, 0, 255).astype(np.uint8), repeats)
        return np.ascontiguousarray(whole[:height, :width])


def lay(picture: Picture, area: Box, alpha: SoftDisc, colour: Colour | None) -> None:
    """Lay a soft disc over an area (picture pixels), in place; without a colour it darkens."""
    height, width = picture.shape[:2]
    x0, y0, x1, y1 = (round(v) for v in area)
    left, top, right, low = max(x0, 0), max(y0, 0), min(x1, width), min(y1, height)
    if right - left < 1 or low - top < 1:
        return
    soft = cv2.resize(alpha, (x1 - x0, y1 - y0), interpolation=cv2.INTER_LINEAR)
    soft = soft[top - y0 : low - y0, left - x0 : right - x0, None]
    part = picture[top:low, left:right]
    if colour is None:
        part[:] = (part * (1.0 - soft)).astype(np.uint8)
    else:
        part[:] = np.clip(part + soft * np.asarray(colour, np.float32), 0, 255).astype(np.uint8)
