"""Where a drawn scene takes place: the layout of a street and its mood.

Lengths are in *units*: one unit is the shorter side of the picture, so a scene looks alike at every
size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bench.scene_shapes import Colour


@dataclass(frozen=True, slots=True)
class Mood:
    """Time of day: sky colours, the tint of all that does not shine, how dark shadows fall."""

    sky_top: Colour
    sky_low: Colour
    tint: Colour
    shadow: float
    lamps_on: bool

    def tinted(self, colour: Colour) -> Colour:
        """The colour as this light shows it."""
        return (colour[0] * self.tint[0], colour[1] * self.tint[1], colour[2] * self.tint[2])


MOODS: tuple[Mood, ...] = (
    Mood((226, 176, 112), (244, 226, 198), (1.0, 1.0, 1.0), 0.36, lamps_on=False),
    Mood((214, 190, 160), (232, 222, 208), (0.94, 0.93, 0.92), 0.22, lamps_on=False),
    Mood((206, 168, 138), (176, 212, 250), (0.84, 0.94, 1.0), 0.34, lamps_on=False),
    Mood((126, 84, 72), (132, 150, 232), (0.72, 0.64, 0.68), 0.26, lamps_on=True),
)


@dataclass(frozen=True, slots=True)
class Lane:
    """One driving lane: its ground line in units, units per metre there, its way (-1 or 1)."""

    ground: float
    scale: float
    way: int


@dataclass(frozen=True, slots=True)
class Street:
    """The layout of one scene, in units from the top left corner of the picture."""

    width: float
    height: float
    wall: float
    kerb: float
    road_end: float
    lanes: tuple[Lane, ...]
    dividers: tuple[float, ...]
    bike_ground: float
    mood: Mood
    kind: int

    def scale_at(self, y: float) -> float:
        """Units per metre for something that stands at y."""
        far, near = self.lanes[0], self.lanes[-1]
        slope = (near.scale - far.scale) / max(near.ground - far.ground, 1e-6)
        return far.scale + slope * (y - far.ground)


def lay_out(rng: np.random.Generator, width: float, height: float) -> Street:
    """Draw a street's layout and mood for a picture of width × height units (the lesser is 1)."""
    count = int(np.clip(round(4 + (height - 1.0) / 0.3), 3, 9))
    if height < 1.2 and rng.random() < 0.35:
        count = 3
    near_scale = float(rng.uniform(0.108, 0.12))
    far_scale = near_scale * float(rng.uniform(0.66, 0.74))
    scales = np.linspace(far_scale, near_scale, count)
    spacing = scales * 1.3
    pavement = float(rng.uniform(0.1, 0.14)) + 0.14 * (height - 1.0)
    bike = float(far_scale * 0.75)
    road_end = height - pavement
    kerb = road_end - float(spacing.sum()) - bike
    tops = kerb + bike + np.concatenate([[0.0], np.cumsum(spacing)])
    first_way = 1 if rng.random() < 0.5 else -1
    lanes = tuple(
        Lane(
            float(tops[i] + spacing[i] * 0.72),
            float(scales[i]),
            first_way if i < (count + 1) // 2 else -first_way,
        )
        for i in range(count)
    )
    mood = MOODS[int(rng.choice(4, p=(0.36, 0.2, 0.22, 0.22)))]
    return Street(
        width=width,
        height=height,
        wall=kerb - far_scale * 0.95,
        kerb=kerb,
        road_end=road_end,
        lanes=lanes,
        dividers=tuple(float(v) for v in tops),
        bike_ground=kerb + bike * 0.7,
        mood=mood,
        kind=int(rng.integers(3)),
    )
