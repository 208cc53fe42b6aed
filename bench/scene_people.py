"""People of a drawn scene: walkers, and riders with their bicycles."""

from __future__ import annotations

import math

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
    limb,
    ring,
    shade,
    soften,
)

CLOTH_COLOURS: tuple[Colour, ...] = (
    (60, 60, 196),
    (190, 110, 50),
    (70, 170, 220),
    (100, 150, 70),
    (120, 70, 140),
    (225, 225, 225),
    (64, 60, 58),
    (150, 120, 220),
    (170, 160, 60),
    (40, 110, 230),
)
SKIN_COLOURS: tuple[Colour, ...] = ((170, 200, 238), (128, 168, 216), (92, 130, 182), (62, 88, 128))
HAIR_COLOURS: tuple[Colour, ...] = ((34, 34, 40), (40, 66, 104), (86, 150, 206), (150, 150, 156))


def person(rng: np.random.Generator, class_id: int) -> Look:
    """A walker, 1.55 to 1.95 m tall; arms and legs swing with the phase."""
    size = float(rng.uniform(0.86, 1.08))
    top = CLOTH_COLOURS[int(rng.integers(len(CLOTH_COLOURS)))]
    trousers = shade(CLOTH_COLOURS[int(rng.integers(len(CLOTH_COLOURS)))], 0.62)
    skin = SKIN_COLOURS[int(rng.integers(len(SKIN_COLOURS)))]
    hair = HAIR_COLOURS[int(rng.integers(len(HAIR_COLOURS)))]
    coat, bag, hat = (bool(rng.random() < p) for p in (0.35, 0.4, 0.25))
    bag_colour = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]

    def paint(phase: float) -> list[Part]:
        swing = 0.52 * math.sin(phase)
        hip, shoulder = (0.0, 0.9), (0.0, 1.36)
        shoe: Colour = (44, 42, 46)
        parts: list[Part] = []
        for way, dark in ((-swing, 0.78), (swing, 1.0)):
            foot = (0.78 * math.sin(way), 0.92 - 0.84 * math.cos(way))
            parts.append(Part(limb(hip, foot, 0.21), shade(trousers, dark)))
            parts.append(
                Part(box(foot[0] - 0.1, foot[1] - 0.08, foot[0] + 0.2, foot[1] + 0.06, 0.05), shoe)
            )
            if dark < 1.0:
                hand = (0.56 * math.sin(swing * 0.9), 1.36 - 0.56 * math.cos(swing))
                parts.append(Part(limb(shoulder, hand, 0.15), shade(top, 0.7)))
        hem = 0.62 if coat else 0.84
        parts.append(
            Part(soften([(-0.25, hem), (-0.23, 1.4), (0.21, 1.4), (0.27, hem)], 0.14), top)
        )
        if bag:
            parts.append(Part(box(-0.36, 0.98, -0.14, 1.36, 0.1), bag_colour))
        parts.append(Part(box(-0.07, 1.36, 0.08, 1.5), shade(skin, 0.85)))
        parts.append(Part(disc(0.02, 1.62, 0.17, 18), skin))
        parts.append(Part(disc(-0.02, 1.66, 0.17, 18)[1:13], hair))
        if hat:
            parts.append(Part(box(-0.2, 1.72, 0.27, 1.77, 0.02), bag_colour))
            parts.append(Part(box(-0.16, 1.74, 0.17, 1.88, 0.08), bag_colour))
        hand = (0.56 * math.sin(-swing * 0.9), 1.36 - 0.56 * math.cos(swing))
        parts.append(Part(limb(shoulder, hand, 0.15), shade(top, 0.86)))
        parts.append(Part(disc(hand[0], hand[1], 0.075, 10), skin))
        return [Part(part.points * size, part.colour) for part in parts]

    return Look(class_id, 0.9 * size, 1.8 * size, paint, pace=math.pi / 0.7)


def cyclist(rng: np.random.Generator, class_id: int) -> Look:
    """A rider on a bicycle, 1.9 m long; the box holds both. Legs turn with the phase."""
    frame = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]
    top = CLOTH_COLOURS[int(rng.integers(len(CLOTH_COLOURS)))]
    trousers = shade(CLOTH_COLOURS[int(rng.integers(len(CLOTH_COLOURS)))], 0.6)
    skin = SKIN_COLOURS[int(rng.integers(len(SKIN_COLOURS)))]
    helmet = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]
    back, front, crank, saddle, head = (
        (-0.6, 0.37),
        (0.6, 0.37),
        (-0.02, 0.4),
        (-0.24, 0.98),
        (0.42, 1.02),
    )

    def leg(angle: float, dark: float) -> list[Part]:
        pedal = (crank[0] + 0.17 * math.cos(angle), crank[1] + 0.17 * math.sin(angle))
        hip = (saddle[0] + 0.02, saddle[1] + 0.06)
        dx, dy = pedal[0] - hip[0], pedal[1] - hip[1]
        reach = math.hypot(dx, dy)
        bend = math.sqrt(max(0.42**2 - (reach / 2) ** 2, 0.0))
        knee = (
            (hip[0] + pedal[0]) / 2 - dy / reach * bend,
            (hip[1] + pedal[1]) / 2 + dx / reach * bend,
        )
        colour = shade(trousers, dark)
        shoe = Part(
            box(pedal[0] - 0.08, pedal[1] - 0.06, pedal[0] + 0.16, pedal[1] + 0.04, 0.04),
            (44, 42, 46),
        )
        return [Part(limb(hip, knee, 0.18), colour), Part(limb(knee, pedal, 0.15), colour), shoe]

    def paint(phase: float) -> list[Part]:
        parts = leg(-phase + math.pi, 0.75)
        for hub in (back, front):
            parts.append(Part(ring(hub[0], hub[1], 0.37, 0.085), TYRE))
            for k in range(3):
                a = -phase * 1.5 + k * math.pi / 3
                dx, dy = 0.3 * math.cos(a), 0.3 * math.sin(a)
                parts.append(
                    Part(limb((hub[0] - dx, hub[1] - dy), (hub[0] + dx, hub[1] + dy), 0.022), HUB)
                )
        for a, b in (
            (back, crank),
            (back, (saddle[0], 0.86)),
            (crank, saddle),
            (crank, (0.4, 0.86)),
            ((-0.22, 0.84), (0.38, 0.86)),
            (front, head),
        ):
            parts.append(Part(limb(a, b, 0.075), frame))
        parts.append(Part(limb(head, (0.52, 1.08), 0.07), TYRE))
        parts.append(Part(box(-0.4, 0.95, -0.1, 1.03, 0.04), TYRE))
        parts.extend(leg(-phase, 1.0))
        parts.append(
            Part(
                soften(
                    [(-0.38, 0.98), (0.0, 1.5), (0.22, 1.46), (0.14, 1.28), (-0.08, 0.96)], 0.13
                ),
                top,
            )
        )
        parts.append(Part(limb((0.1, 1.4), (0.24, 1.12), 0.14), shade(top, 0.84)))
        parts.append(Part(limb((0.23, 1.15), (0.52, 1.08), 0.11), skin))
        parts.append(Part(disc(0.26, 1.63, 0.165, 18), skin))
        parts.append(
            Part(np.concatenate([disc(0.24, 1.68, 0.19, 20)[:11], [(0.06, 1.64)]]), helmet)
        )
        return parts

    return Look(class_id, 1.94, 1.87, paint, pace=math.pi / 2.2)
