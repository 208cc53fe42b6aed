"""Cars, trucks and buses of a drawn scene, seen from the side."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.scene_shapes import (
    BODY_COLOURS,
    HUB,
    TYRE,
    Colour,
    Look,
    Part,
    box,
    disc,
    mix,
    shade,
    soften,
)

GLASS: Colour = (92, 72, 56)
GLASS_SHINE: Colour = (150, 128, 108)
CHASSIS: Colour = (58, 54, 52)
HEADLIGHT: Colour = (190, 240, 255)
TAILLIGHT: Colour = (48, 40, 214)


def _wheel(x: float, radius: float) -> list[Part]:
    return [
        Part(disc(x, radius, radius), TYRE),
        Part(disc(x, radius, radius * 0.58, 16), HUB),
        Part(disc(x, radius, radius * 0.22, 8), shade(HUB, 0.55)),
    ]


def _still(parts: list[Part], outline: set[int]) -> Callable[[float], list[Part]]:
    """Parts that stay as they are, of which those at `outline` (and tyres) make the outline."""
    marked = [
        Part(p.points, p.colour, p.lit, inner=i not in outline and p.colour is not TYRE)
        for i, p in enumerate(parts)
    ]
    return lambda _phase: marked


def car(rng: np.random.Generator, class_id: int) -> Look:
    """A saloon, a hatchback or an off-roader, about 4 m long."""
    body = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]
    kind = int(rng.integers(3))
    half, top, rear, roof = (
        (2.2, 1.46, -1.78, -1.05),
        (1.95, 1.52, -1.9, -1.5),
        (2.15, 1.74, -2.08, -1.8),
    )[kind]
    waist = 0.66 * top
    front = half - 1.02
    roof_end = front - 0.85
    lower = [
        (-half, 0.3), (-half, waist - 0.1), (-half + 0.15, waist + 0.03), (front, waist + 0.03),
        (half - 0.18, waist - 0.12), (half, waist - 0.28), (half, 0.3),
    ]  # fmt: skip
    cabin = [(rear, waist), (roof, top), (roof_end, top), (front + 0.12, waist)]
    pillar = (roof + roof_end) / 2 + 0.08
    lean = (roof - rear) * 0.72
    glass_top, glass_low = top - 0.11, waist + 0.05
    back_window = [
        (rear + 0.26, glass_low),
        (rear + 0.2 + lean, glass_top),
        (pillar - 0.05, glass_top),
        (pillar - 0.05, glass_low),
    ]
    front_window = [
        (pillar + 0.05, glass_low),
        (pillar + 0.05, glass_top),
        (roof_end - 0.05, glass_top),
        (front - 0.1, glass_low),
    ]
    axle, wheel = half - 0.82, 0.35
    parts = [
        Part(soften(cabin, 0.28), shade(body, 0.92)),
        Part(soften(lower, 0.2), body),
        Part(box(-half + 0.1, waist - 0.1, front, waist - 0.04), shade(body, 1.35)),
        Part(box(-half + 0.03, 0.3, half - 0.03, 0.47, 0.06), shade(body, 0.66)),
        Part(soften(back_window, 0.1), GLASS),
        Part(soften(front_window, 0.1), GLASS),
        Part(
            np.asarray(
                [
                    (pillar + 0.2, glass_low),
                    (pillar + 0.42, glass_top),
                    (pillar + 0.6, glass_top),
                    (pillar + 0.38, glass_low),
                ]
            ),
            GLASS_SHINE,
        ),
        Part(box(pillar - 0.02, 0.5, pillar + 0.015, waist), shade(body, 0.72)),
        Part(box(pillar - 0.36, waist - 0.2, pillar - 0.14, waist - 0.15), shade(body, 0.6)),
        Part(box(half - 0.2, waist - 0.4, half - 0.01, waist - 0.24, 0.06), HEADLIGHT, lit=True),
        Part(
            box(-half + 0.01, waist - 0.32, -half + 0.16, waist - 0.14, 0.05), TAILLIGHT, lit=True
        ),
    ]
    for x in (-axle, axle):
        parts.append(Part(disc(x, wheel, wheel + 0.07)[:11], shade(body, 0.45)))
        parts.extend(_wheel(x, wheel))
    return Look(class_id, 2 * half, top, _still(parts, {0, 1}), headlight=(half, waist - 0.32))


def truck(rng: np.random.Generator, class_id: int) -> Look:
    """A box lorry, about 7 m long: a coloured cab before a tall plain box."""
    cab = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]
    box_colours: tuple[Colour, ...] = (
        (236, 236, 232),
        (214, 226, 234),
        (222, 206, 190),
        (190, 214, 196),
        (176, 196, 226),
    )
    load = box_colours[int(rng.integers(len(box_colours)))]
    sign = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]
    half, top = 3.4, 3.0
    front_cab = [(1.85, 0.45), (1.85, 2.42), (2.75, 2.42), (3.22, 1.5), (3.4, 1.25), (3.4, 0.45)]
    parts = [
        Part(box(-half + 0.05, 0.5, half - 0.3, 0.85), CHASSIS),
        Part(box(-half, 0.8, 1.72, top, 0.08), load),
        Part(box(-half, top - 0.16, 1.72, top, 0.06), shade(load, 0.82)),
        Part(box(-half, 0.8, 1.72, 0.98, 0.06), shade(load, 0.78)),
        Part(
            np.asarray([(-2.5, 1.05), (-1.2, 1.05), (-0.1, 2.75), (-1.4, 2.75)]),
            mix(sign, load, 0.25),
        ),
        Part(
            np.asarray([(-0.9, 1.05), (-0.4, 1.05), (0.7, 2.75), (0.2, 2.75)]),
            mix(sign, load, 0.45),
        ),
        Part(soften(front_cab, 0.16), cab),
        Part(soften([(2.2, 1.5), (2.2, 2.22), (2.68, 2.22), (3.04, 1.5)], 0.1), GLASS),
        Part(np.asarray([(2.4, 1.52), (2.52, 2.2), (2.64, 2.2), (2.56, 1.52)]), GLASS_SHINE),
        Part(box(2.14, 0.75, 2.17, 2.3), shade(cab, 0.65)),
        Part(box(1.9, 0.45, 3.38, 0.66, 0.06), shade(cab, 0.55)),
        Part(box(3.16, 0.78, 3.39, 1.0, 0.07), HEADLIGHT, lit=True),
        Part(box(-half + 0.01, 0.55, -half + 0.2, 0.74), TAILLIGHT, lit=True),
    ]
    for x in (-2.55, -1.6, 2.55):
        parts.extend(_wheel(x, 0.46))
    return Look(class_id, 2 * half, top, _still(parts, {0, 1, 6}), headlight=(half, 0.9))


def bus(rng: np.random.Generator, class_id: int) -> Look:
    """A city bus, about 8 m long: a row of windows over a striped side, some with passengers."""
    bright = ((52, 60, 206), (60, 178, 240), (170, 96, 40), (110, 150, 56), (90, 120, 230))
    body: Colour = bright[int(rng.integers(len(bright)))]
    half, top = 3.9, 3.05
    parts = [
        Part(box(-half, 0.4, half, top, 0.32), body),
        Part(box(-half + 0.2, top - 0.2, half - 0.2, top - 0.07, 0.06), shade(body, 1.3)),
        Part(box(-half, 0.95, half, 1.2), (238, 238, 236)),
        Part(box(-half + 0.04, 0.4, half - 0.04, 0.66, 0.08), shade(body, 0.6)),
        Part(box(-half + 0.18, 1.4, half - 0.02, 2.5, 0.16), shade(GLASS, 0.62)),
    ]
    for i in range(5):
        x = -half + 0.34 + i * 1.22
        parts.append(Part(box(x, 1.5, x + 1.08, 2.4, 0.1), shade(GLASS, 1.1)))
        if rng.random() < 0.55:
            parts.append(Part(disc(x + 0.5, 1.86, 0.17, 12), shade(GLASS, 0.5)))
            parts.append(Part(box(x + 0.24, 1.5, x + 0.76, 1.72, 0.1), shade(GLASS, 0.5)))
        parts.append(
            Part(
                np.asarray([(x + 0.15, 1.52), (x + 0.45, 2.38), (x + 0.6, 2.38), (x + 0.3, 1.52)]),
                shade(GLASS, 1.3),
            )
        )
    door = half - 1.2
    parts += [
        Part(box(door, 0.6, door + 0.84, 2.42, 0.06), shade(GLASS, 1.16)),
        Part(box(door + 0.4, 0.6, door + 0.45, 2.42), shade(body, 0.6)),
        Part(box(half - 1.3, 2.58, half - 0.16, 2.84, 0.05), (60, 190, 255), lit=True),
        Part(box(half - 0.24, 0.72, half - 0.02, 0.92, 0.07), HEADLIGHT, lit=True),
        Part(box(-half + 0.02, 0.78, -half + 0.2, 1.36, 0.05), TAILLIGHT, lit=True),
    ]
    for x in (-half + 1.5, half - 1.75):
        parts.append(Part(disc(x, 0.46, 0.56)[:12], shade(body, 0.4)))
        parts.extend(_wheel(x, 0.46))
    return Look(class_id, 2 * half, top, _still(parts, {0}), headlight=(half, 0.82))
