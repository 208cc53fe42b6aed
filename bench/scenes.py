"""Drawn street scenes with exact truth: the demo, the tests and the benches share them.

A `Scene` is one camera on one street. Everything follows from its seed, its size and the time asked
for: layout, time of day, who drives and walks, and the camera's noise. Lengths are in units of the
picture's shorter side, so what a model sees after letterboxing is alike at every size.
"""

from __future__ import annotations

import numpy as np

from bench.scene_backdrop import Picture, fill_fixed, paint_backdrop
from bench.scene_camera import HALO, SHADOW, Camera, lay
from bench.scene_match import MIN_VISIBLE, Box, Match, Truth, match
from bench.scene_street import lay_out
from bench.scene_traffic import CLASSES, Placed, Traffic
from bench.scene_truth import TruthMap

__all__ = ["CLASSES", "HELD_OUT", "MIN_VISIBLE", "Box", "Match", "Scene", "Truth", "match"]

HELD_OUT = 1_000_000
"""Scene seeds from here on are for judging only; the demo model is trained on scenes below."""

_HEADLIGHT = (150.0, 215.0, 245.0)


class Scene:
    """One camera's drawn street; `frame(t)` gives a picture and its truth.

    `objects` asks for at most so many movers (one between two laps is outside the picture); without
    it the street fills itself to suit its size. The backdrop is painted at the first frame and
    kept. Not thread-safe: use one Scene per thread.
    """

    def __init__(self, seed: int, width: int, height: int, *, objects: int | None = None) -> None:
        if width < 1 or height < 1:
            raise ValueError(f"a scene needs at least one pixel, not {width}x{height}")
        self.seed, self.width, self.height = seed, width, height
        self._unit = float(min(width, height))
        rng = np.random.default_rng([seed, 1])
        self._street = lay_out(rng, width / self._unit, height / self._unit)
        self._traffic = Traffic(seed, self._street, self._unit, objects)
        self._camera = Camera(seed, width, height)
        self._truth_map = TruthMap(width, height)
        self._backdrop: Picture | None = None

    def frame(self, t: float) -> tuple[Picture, list[Truth]]:
        """The picture at t seconds, (height, width, 3) uint8 BGR, and its truth, far to near.

        The picture is the caller's to keep or change.
        """
        if self._backdrop is None:
            rng = np.random.default_rng([self.seed, 5])
            self._backdrop = paint_backdrop(rng, self._street, self._unit, self.width, self.height)
        picture = self._backdrop.copy()
        placed = self._traffic.at(t)
        for thing in placed:
            self._paint(picture, thing)
        self._camera.expose(picture, t)
        return picture, self._truth_map.truths(placed)

    def _paint(self, picture: Picture, thing: Placed) -> None:
        mood = self._street.mood
        pixels = thing.scale * self._unit
        x, y = thing.centre * self._unit, thing.ground * self._unit
        half = thing.look.length * pixels * 0.54
        deep = min(0.16 * thing.look.length + 0.1, 0.5) * pixels
        floor = (x - half, y - deep * 0.62, x + half, y + deep * 0.5)
        lay(picture, floor, SHADOW * np.float32(mood.shadow), None)
        for points, part in zip(thing.points, thing.parts, strict=True):
            shines = part.lit and mood.lamps_on
            fill_fixed(picture, points, part.colour if shines else mood.tinted(part.colour))
        if mood.lamps_on and thing.look.headlight is not None:
            x += thing.way * (thing.look.headlight[0] + 0.35) * pixels
            y -= thing.look.headlight[1] * pixels
            beam = (x - 1.1 * pixels, y - 0.62 * pixels, x + 1.1 * pixels, y + 0.62 * pixels)
            lay(picture, beam, HALO * np.float32(0.5), _HEADLIGHT)
