"""What stands still in a drawn scene: sky, houses or hills, trees, pavements, the road."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from bench.scene_shapes import BODY_COLOURS, Colour, Points, box, disc, mix, shade, soften
from bench.scene_street import Mood, Street

Picture = npt.NDArray[np.uint8]
"""(height, width, 3) uint8, blue-green-red."""

_SHIFT = 4


def fill(picture: Picture, points: Points, colour: Colour) -> None:
    """Fill one polygon (n, 2) in picture pixels (pixel centres at whole numbers), antialiased."""
    fill_fixed(picture, fixed_point(points), colour)


def fixed_point(points: Points) -> npt.NDArray[np.int32]:
    """Picture pixels as OpenCV's drawing wants them: sixteenths, int32."""
    return np.rint(points * (1 << _SHIFT)).astype(np.int32)


def fill_fixed(picture: Picture, points: npt.NDArray[np.int32], colour: Colour) -> None:
    """Fill one polygon (n, 2) given in sixteenths of a pixel, antialiased."""
    cv2.fillPoly(picture, [points], colour, cv2.LINE_AA, _SHIFT)


class _Brush:
    """Paints polygons given in units, tinted by the mood."""

    def __init__(self, picture: Picture, unit: float, mood: Mood) -> None:
        self.picture = picture
        self.unit = unit
        self.mood = mood

    def __call__(self, points: Points, colour: Colour, *, lit: bool = False) -> None:
        fill(self.picture, points * self.unit - 0.5, colour if lit else self.mood.tinted(colour))


def paint_backdrop(
    rng: np.random.Generator, street: Street, unit: float, width: int, height: int
) -> Picture:
    """The street without anything that moves: (height, width, 3) uint8."""
    mood = street.mood
    rows = np.linspace(0.0, 1.0, height)[:, None] * (street.height / max(street.wall, 0.05))
    share = np.clip(rows, 0.0, 1.0)
    sky = np.asarray(mood.sky_top)[None] * (1 - share) + np.asarray(mood.sky_low)[None] * share
    picture = np.repeat(np.round(sky).astype(np.uint8)[:, None], width, axis=1)
    brush = _Brush(picture, unit, mood)
    _paint_sky(rng, street, brush)
    (_paint_town, _paint_suburb, _paint_park)[street.kind](rng, street, brush)
    _paint_ground(rng, street, brush)
    return picture


def _paint_sky(rng: np.random.Generator, street: Street, brush: _Brush) -> None:
    sun: Colour = (196, 236, 255) if not street.mood.lamps_on else (206, 226, 240)
    x, y = rng.uniform(0.1, 0.9) * street.width, rng.uniform(0.12, 0.4) * street.wall
    for k, radius in ((0.14, 0.1), (0.3, 0.075), (1.0, 0.045)):
        brush(disc(x, y, radius, 48), mix(street.mood.sky_top, sun, k), lit=True)
    cloud = mix(street.mood.sky_low, (255, 255, 255), 0.45 if not street.mood.lamps_on else 0.1)
    for _ in range(int(rng.integers(3, 6)) + int(street.width)):
        x, y, size = (
            rng.uniform(0, street.width),
            rng.uniform(0.05, 0.6) * street.wall,
            rng.uniform(0.02, 0.05),
        )
        brush(
            box(x - 2.6 * size, y - 0.35 * size, x + 2.6 * size, y + 0.4 * size, 0.37 * size),
            cloud,
            lit=True,
        )
        for dx, lift, r in ((-1.0, 0.3, 0.8), (0.1, 0.7, 1.05), (1.2, 0.3, 0.7)):
            brush(disc(x + dx * size, y - lift * size * 0.6, r * size * 0.75, 28), cloud, lit=True)


def _hills(
    rng: np.random.Generator, street: Street, brush: _Brush, lift: float, colour: Colour
) -> None:
    x = np.linspace(-0.1, street.width + 0.1, 60)
    a, b, c = rng.uniform(0, 6.3, 3)
    y = street.wall - lift * (
        0.62 + 0.22 * np.sin(2.1 * x + a) + 0.12 * np.sin(4.7 * x + b) + 0.05 * np.sin(9 * x + c)
    )
    outline = np.stack([x, y], axis=1)
    ends = np.asarray([(street.width + 0.1, street.wall + 0.02), (-0.1, street.wall + 0.02)])
    brush(np.concatenate([outline, ends]), colour)


def _skyline(
    rng: np.random.Generator, street: Street, brush: _Brush, lift: float, colour: Colour
) -> None:
    x = -0.05
    while x < street.width + 0.05:
        wide, tall = rng.uniform(0.05, 0.14), lift * rng.uniform(0.55, 1.0)
        brush(
            box(x, street.wall - tall, x + wide + 0.002, street.wall + 0.01),
            shade(colour, float(rng.uniform(0.95, 1.04))),
        )
        x += wide


_WALLS: tuple[Colour, ...] = (
    (150, 176, 214),
    (178, 196, 208),
    (122, 146, 190),
    (196, 190, 178),
    (160, 160, 186),
    (140, 178, 188),
    (188, 206, 222),
    (168, 150, 138),
)
_LEAVES: tuple[Colour, ...] = ((72, 138, 92), (64, 124, 76), (84, 150, 112), (70, 140, 124))


def _windows(
    rng: np.random.Generator, street: Street, brush: _Brush, area: tuple[float, float, float, float]
) -> None:
    x0, y0, x1, y1 = area
    columns, rows = max(int((x1 - x0) / 0.055), 1), max(int((y1 - y0) / 0.07), 1)
    pitch_x, pitch_y = (x1 - x0) / columns, (y1 - y0) / rows
    for row in range(rows):
        for column in range(columns):
            x, y = x0 + (column + 0.5) * pitch_x, y0 + (row + 0.5) * pitch_y
            glowing = street.mood.lamps_on and rng.random() < 0.45
            glass: Colour = (
                (120, 200, 250)
                if glowing
                else shade((150, 124, 98), float(rng.uniform(0.75, 1.12)))
            )
            brush(box(x - 0.0165, y - 0.024, x + 0.0165, y + 0.026), (226, 230, 232))
            brush(box(x - 0.0135, y - 0.021, x + 0.0135, y + 0.02), glass, lit=glowing)
            brush(box(x - 0.0015, y - 0.021, x + 0.0015, y + 0.02), (226, 230, 232))


def _paint_town(rng: np.random.Generator, street: Street, brush: _Brush) -> None:
    _skyline(
        rng,
        street,
        brush,
        min(street.wall * 0.92, 0.62),
        mix(street.mood.sky_low, (150, 130, 120), 0.4),
    )
    x = -float(rng.uniform(0.0, 0.15))
    while x < street.width:
        wide = float(rng.uniform(0.22, 0.36))
        tall = float(min(rng.uniform(0.66, 0.96) * street.wall, rng.uniform(0.5, 0.75)))
        colour = _WALLS[int(rng.integers(len(_WALLS)))]
        top, base = street.wall - tall, street.wall + 0.012
        brush(box(x, top, x + wide, base), colour)
        brush(box(x - 0.004, top - 0.012, x + wide + 0.004, top + 0.008), shade(colour, 0.8))
        brush(box(x + wide - 0.012, top + 0.008, x + wide, base), shade(colour, 0.9))
        shop = base - 0.095
        if shop - top > 0.06:
            _windows(rng, street, brush, (x + 0.014, top + 0.02, x + wide - 0.02, shop - 0.012))
        lit = street.mood.lamps_on
        brush(box(x + 0.014, shop + 0.02, x + wide - 0.022, base), shade(colour, 0.6))
        brush(
            box(x + 0.022, shop + 0.03, x + wide - 0.075, base - 0.018),
            (150, 206, 240) if lit else (140, 118, 96),
            lit=lit,
        )
        brush(box(x + wide - 0.066, shop + 0.03, x + wide - 0.03, base), (84, 76, 70))
        awning = BODY_COLOURS[int(rng.integers(len(BODY_COLOURS)))]
        stripes = max(int(wide / 0.03), 3)
        for i in range(stripes):
            left, right = (
                x + 0.01 + i * (wide - 0.024) / stripes,
                x + 0.01 + (i + 1) * (wide - 0.024) / stripes,
            )
            brush(
                box(left, shop + 0.005, right, shop + 0.034), awning if i % 2 else (234, 236, 238)
            )
        x += wide
    _trees(rng, street, brush, 0.5)


def _paint_suburb(rng: np.random.Generator, street: Street, brush: _Brush) -> None:
    _hills(
        rng,
        street,
        brush,
        min(street.wall * 0.95, 0.55),
        mix(street.mood.sky_low, (110, 140, 110), 0.45),
    )
    _hills(rng, street, brush, min(street.wall * 0.6, 0.3), (92, 150, 112))
    x = float(rng.uniform(-0.1, 0.1))
    while x < street.width:
        wide, tall = float(rng.uniform(0.26, 0.36)), float(rng.uniform(0.13, 0.17))
        colour = _WALLS[int(rng.integers(len(_WALLS)))]
        roof: Colour = ((70, 84, 150), (92, 88, 96), (66, 92, 120))[int(rng.integers(3))]
        base = street.wall + 0.012
        top = base - tall
        peak = min(0.11, max(top - 0.02, 0.03))
        brush(box(x + wide * 0.7, top - peak * 1.05, x + wide * 0.77, top), shade(roof, 0.8))
        brush(box(x + 0.02, top, x + wide - 0.02, base), colour)
        brush(
            np.asarray(
                [
                    (x, top + 0.008),
                    (x + wide * 0.22, top - peak),
                    (x + wide * 0.78, top - peak),
                    (x + wide, top + 0.008),
                ]
            ),
            roof,
        )
        brush(box(x, top + 0.002, x + wide, top + 0.014), shade(roof, 0.75))
        _windows(rng, street, brush, (x + 0.03, top + 0.02, x + wide * 0.55, base - 0.025))
        brush(box(x + wide * 0.66, base - 0.095, x + wide * 0.66 + 0.05, base), shade(roof, 0.9))
        brush(
            box(x + wide * 0.66 + 0.007, base - 0.088, x + wide * 0.66 + 0.043, base - 0.05),
            (150, 124, 98),
        )
        gap = float(rng.uniform(0.06, 0.16))
        for px in np.arange(x + wide, x + wide + gap, 0.016):
            brush(box(float(px), base - 0.045, float(px) + 0.01, base), (228, 232, 234))
        brush(
            box(x + wide - 0.01, base - 0.034, x + wide + gap + 0.01, base - 0.027), (214, 220, 224)
        )
        x += wide + gap
    _trees(rng, street, brush, 0.9)


def _paint_park(rng: np.random.Generator, street: Street, brush: _Brush) -> None:
    _skyline(
        rng,
        street,
        brush,
        min(street.wall * 0.85, 0.5),
        mix(street.mood.sky_low, (140, 120, 112), 0.35),
    )
    _hills(rng, street, brush, min(street.wall * 0.6, 0.34), (104, 156, 120))
    _hills(rng, street, brush, min(street.wall * 0.36, 0.2), (84, 146, 104))
    if rng.random() < 0.6:
        x, y = rng.uniform(0.2, 0.8) * street.width, street.wall - 0.035
        pond = np.stack(
            [
                x + 0.26 * np.cos(np.linspace(0, 6.28, 40)),
                y + 0.018 * np.sin(np.linspace(0, 6.28, 40)),
            ],
            axis=1,
        )
        brush(pond, mix(street.mood.sky_top, (230, 210, 180), 0.4))
    _trees(rng, street, brush, 2.6)
    hedge = street.wall + 0.012
    for x in np.arange(-0.02, street.width + 0.05, 0.045):
        brush(disc(float(x), hedge - 0.018, float(rng.uniform(0.022, 0.03)), 20), (66, 122, 82))
    brush(box(-0.1, hedge - 0.02, street.width + 0.1, hedge), (58, 112, 74))


def _trees(rng: np.random.Generator, street: Street, brush: _Brush, per_unit: float) -> None:
    for x in np.sort(rng.uniform(0, street.width, max(int(per_unit * street.width * 2), 1))):
        base = street.wall + 0.014
        tall = float(rng.uniform(0.17, 0.27))
        leaf = _LEAVES[int(rng.integers(len(_LEAVES)))]
        brush(box(float(x) - 0.008, base - tall * 0.5, float(x) + 0.008, base), (66, 86, 110))
        crown = base - tall * 0.68
        spread = tall * 0.3
        for dx, dy, r, tone in (
            (0, 0.1, 1, 0.86),
            (-0.55, 0.25, 0.7, 0.9),
            (0.55, 0.2, 0.72, 0.94),
            (0.0, -0.5, 0.78, 1.0),
            (-0.2, -0.2, 0.6, 1.1),
        ):
            brush(
                disc(float(x) + dx * spread, crown + dy * spread, r * spread, 26), shade(leaf, tone)
            )


def _paint_ground(rng: np.random.Generator, street: Street, brush: _Brush) -> None:
    width, edge = street.width + 0.1, 0.012
    paving: Colour = ((176, 188, 196), (186, 190, 190), (164, 180, 194))[int(rng.integers(3))]
    asphalt: Colour = ((104, 98, 94), (92, 88, 86), (116, 112, 106))[int(rng.integers(3))]
    brush(box(-0.1, street.wall + 0.012, width, street.kerb), paving)
    brush(box(-0.1, street.wall + 0.012, width, street.wall + 0.018), shade(paving, 0.84))
    brush(box(-0.1, street.kerb, width, street.road_end), asphalt)
    brush(box(-0.1, street.road_end, width, street.height + 0.1), shade(paving, 1.06))
    middle = street.width / 2
    for near, far, y0, y1, pitch in (
        (1.06, 1.0, street.wall + 0.018, street.kerb, 0.07),
        (1.25, 1.0, street.road_end, street.height, 0.14),
    ):
        for x in np.arange(-0.4 * street.width, 1.4 * street.width, pitch):
            top, low = middle + (x - middle) * far, middle + (x - middle) * near
            brush(
                np.asarray([(top, y0), (top + 0.002, y0), (low + 0.003, y1), (low, y1)]),
                shade(paving, 0.9),
            )
    row = street.road_end + 0.045
    while row < street.height:
        brush(box(-0.1, row, width, row + 0.0025), shade(paving, 0.9))
        row += 0.055
    for y, stone in ((street.kerb, edge * 0.8), (street.road_end, edge * 1.3)):
        brush(box(-0.1, y - stone, width, y + stone * 0.1), (206, 212, 214))
        brush(box(-0.1, y, width, y + stone * 0.55), shade(paving, 0.62))
    bike_end = street.dividers[0]
    if rng.random() < 0.6:
        brush(
            box(-0.1, street.kerb + 0.008, width, bike_end - 0.003),
            mix(asphalt, (84, 96, 168), 0.45),
        )
    brush(box(-0.1, bike_end - 0.002, width, bike_end + 0.002), (222, 226, 226))
    turn = (len(street.lanes) + 1) // 2
    for i, y in enumerate(street.dividers[1:-1], start=1):
        scale = street.scale_at(y)
        if i == turn:
            for dy in (-0.006, 0.003):
                brush(box(-0.1, y + dy, width, y + dy + 0.003), (120, 204, 236))
            continue
        for x in np.arange(float(rng.uniform(-3, 0)) * scale, width, 4.2 * scale):
            brush(
                np.asarray(
                    [
                        (x, y - 0.002),
                        (x + 2 * scale, y - 0.002),
                        (x + 2 * scale + 0.003, y + 0.003),
                        (x + 0.003, y + 0.003),
                    ]
                ),
                (220, 224, 226),
            )
    for _ in range(int(5 * street.width)):
        x, y = rng.uniform(0, street.width), rng.uniform(bike_end + 0.02, street.road_end - 0.02)
        long, thick = rng.uniform(0.04, 0.16), rng.uniform(0.004, 0.014)
        brush(
            soften([(x, y), (x + long, y - 0.002), (x + long, y + thick), (x, y + thick)], 0.006),
            shade(asphalt, float(rng.uniform(0.93, 1.04))),
        )
