"""Who moves through a drawn scene: tracks along a street, and what is on them at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bench.scene_backdrop import fixed_point
from bench.scene_match import Box
from bench.scene_people import cyclist, person
from bench.scene_shapes import Look, Part, Points
from bench.scene_street import Lane, Street
from bench.scene_vehicles import bus, car, truck

CLASSES: tuple[str, ...] = ("car", "truck", "bus", "person", "cyclist")
"""Labels; the index is the class id. A cyclist is the rider and the bicycle together."""

CAR, TRUCK, BUS, PERSON, CYCLIST = range(5)
_MAKERS: tuple[Callable[[np.random.Generator, int], Look], ...] = (car, truck, bus, person, cyclist)
_LONGEST_M = 7.9
_MOST_LOOKS = 100
_STEPS = 32
"""Poses per turn of a walker's or rider's phase."""
MAP_UNIT = 360.0
"""Cells of the truth map per unit: about what a model is shown of a 1080p picture."""


@dataclass(frozen=True, slots=True)
class Track:
    """A line along which one slot's objects move; each lap brings a new object.

    `ground` (units) is the line, `scale` units per metre there, `way` -1 or 1, `speed` units/s,
    `loop` a lap's length, `start` where the slot is at t = 0. Speed swells and the line drifts by
    `sway` (units) at `rate` (rad/s) from `phase`. `classes` come with `odds`; `fill` is the share
    of laps that bring an object at all.
    """

    ground: float
    scale: float
    way: int
    speed: float
    loop: float
    start: float
    classes: tuple[int, ...]
    odds: tuple[float, ...]
    sway: float
    rate: float
    phase: float
    fill: float


@dataclass(frozen=True, slots=True)
class Pose:
    """A look's parts at one step of its phase; `corners` (n, 2) of all of them, split at `ends`."""

    parts: list[Part]
    corners: Points
    ends: list[int]


@dataclass(frozen=True, slots=True)
class Placed:
    """One object at one time.

    `points` and `cells` give each part's corners, int32, in sixteenths of a picture pixel and of a
    cell of the truth map; `extent` is the whole outline in picture pixels, not clipped. `centre`
    and `ground` are units, `scale` units per metre.
    """

    look: Look
    parts: list[Part]
    points: list[npt.NDArray[np.int32]]
    cells: list[npt.NDArray[np.int32]]
    extent: Box
    centre: float
    ground: float
    scale: float
    way: int
    object_id: int


class Traffic:
    """Everything that moves on one street; a pure function of the seed and the time."""

    def __init__(self, seed: int, street: Street, unit: float, objects: int | None) -> None:
        self._seed = seed
        self._street = street
        self._unit = unit
        self._tracks = lay_tracks(np.random.default_rng([seed, 2]), street, objects)
        self._looks: dict[tuple[int, int], Look | None] = {}
        self._poses: dict[tuple[int, int, int], Pose] = {}

    def at(self, t: float) -> list[Placed]:
        """Everything that may show at t seconds, far to near."""
        slots = range(len(self._tracks))
        things = [thing for slot in slots if (thing := self._place(slot, t)) is not None]
        return sorted(things, key=lambda thing: (thing.ground, thing.object_id))

    def _place(self, slot: int, t: float) -> Placed | None:
        track, width = self._tracks[slot], self._street.width
        swell = 0.35 * track.speed / track.rate * math.sin(track.rate * t + track.phase)
        gone = track.start + track.speed * t + swell
        lap = math.floor(gone / track.loop)
        look = self._look(slot, lap)
        if look is None:
            return None
        centre = gone - lap * track.loop - (track.loop - width) / 2
        if track.way < 0:
            centre = width - centre
        if max(-centre, centre - width) > look.length * track.scale:
            return None
        ground = track.ground + track.sway * math.sin(track.rate * t * 1.3 + track.phase)
        step = round(gone / track.scale * look.pace / (2 * math.pi) * _STEPS) % _STEPS
        pose = self._pose(slot, lap, step, look)
        pixels = track.scale * self._unit
        corners = pose.corners * (pixels * track.way, -pixels)
        corners += (centre * self._unit, ground * self._unit)
        (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
        if x1 <= 0 or x0 >= width * self._unit or y1 <= 0 or y0 >= self._street.height * self._unit:
            return None
        return Placed(
            look=look,
            parts=pose.parts,
            points=_split(fixed_point(corners - 0.5), pose.ends),
            cells=_split(fixed_point(corners * (MAP_UNIT / self._unit) - 0.5), pose.ends),
            extent=(float(x0), float(y0), float(x1), float(y1)),
            centre=centre,
            ground=ground,
            scale=track.scale,
            way=track.way,
            object_id=slot * 100_000 + lap % 100_000,
        )

    def _look(self, slot: int, lap: int) -> Look | None:
        key = (slot, lap)
        if key not in self._looks:
            if len(self._looks) >= _MOST_LOOKS:
                self._looks.clear()
                self._poses.clear()
            track = self._tracks[slot]
            rng = np.random.default_rng([self._seed, 6, slot, lap % (1 << 32)])
            class_id = int(rng.choice(track.classes, p=track.odds))
            here = rng.random() < track.fill
            self._looks[key] = _MAKERS[class_id](rng, class_id) if here else None
        return self._looks[key]

    def _pose(self, slot: int, lap: int, step: int, look: Look) -> Pose:
        key = (slot, lap, step)
        if key not in self._poses:
            parts = look.paint(step * 2 * math.pi / _STEPS)
            ends = np.cumsum([len(part.points) for part in parts]).tolist()
            self._poses[key] = Pose(parts, np.concatenate([part.points for part in parts]), ends)
        return self._poses[key]


def _split(points: npt.NDArray[np.int32], ends: list[int]) -> list[npt.NDArray[np.int32]]:
    return [points[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def lay_tracks(rng: np.random.Generator, street: Street, objects: int | None) -> list[Track]:
    """The tracks of a street; with `objects`, at most so many of them, and each always taken."""
    tracks = [
        *(track for lane in street.lanes for track in _driving(rng, street, lane)),
        *_walking(rng, street),
        *_cycling(rng, street),
    ]
    if objects is None:
        return tracks
    order = rng.permutation(len(tracks))[: max(objects, 0)]
    return [replace(tracks[int(i)], fill=1.0) for i in order]


def _driving(rng: np.random.Generator, street: Street, lane: Lane) -> list[Track]:
    """A lane's vehicles share one speed and keep their distance, so none drives through another."""
    loop = street.width + 2 * _LONGEST_M * lane.scale * 0.56
    slots = max(int(loop / (_LONGEST_M * lane.scale * 1.1)), 1)
    speed, rate, phase = rng.uniform(0.09, 0.3), rng.uniform(0.3, 0.8), rng.uniform(0, 6.28)
    # Tall vehicles in the nearest lane would hide the street.
    odds = (0.8, 0.1, 0.1) if lane is street.lanes[-1] else (0.62, 0.2, 0.18)
    return [
        Track(
            ground=lane.ground,
            scale=lane.scale,
            way=lane.way,
            speed=float(speed),
            loop=loop,
            start=float(loop / slots * (i + rng.uniform(-0.04, 0.04)) + lane.ground),
            classes=(CAR, TRUCK, BUS),
            odds=odds,
            sway=0.0,
            rate=float(rate),
            phase=float(phase),
            fill=0.8,
        )
        for i in range(slots)
    ]


def _walking(rng: np.random.Generator, street: Street) -> list[Track]:
    far = (street.wall + 0.03, street.kerb - 0.012)
    near = (street.road_end + 0.03, street.height - 0.025)
    tracks: list[Track] = []
    for room, per_unit, speeds in ((far, 2.4, (0.025, 0.06)), (near, 1.3, (0.04, 0.09))):
        count = max(round(per_unit * street.width), 1)
        for i in range(count):
            ground = float(rng.uniform(*room))
            tracks.append(_alone(rng, street, ground, i / count, speeds, PERSON))
    return tracks


def _cycling(rng: np.random.Generator, street: Street) -> list[Track]:
    tracks: list[Track] = []
    for i in range(max(round(1.5 * street.width), 1)):
        if i % 3 == 2:
            ground = street.road_end - 0.02
        else:
            ground = street.bike_ground + float(rng.uniform(-0.008, 0.008))
        tracks.append(_alone(rng, street, ground, i / 3, (0.08, 0.17), CYCLIST))
    return tracks


def _alone(
    rng: np.random.Generator,
    street: Street,
    ground: float,
    share: float,
    speeds: tuple[float, float],
    class_id: int,
) -> Track:
    """A track of its own for one walker or rider who starts at `share` of the lap."""
    scale = street.scale_at(ground)
    loop = street.width + 2.4 * scale
    way = 1 if rng.random() < 0.5 else -1
    start = float(loop * (share + rng.uniform(-0.1, 0.1)))
    return Track(
        ground=ground,
        scale=scale,
        way=way,
        speed=float(rng.uniform(*speeds)),
        loop=loop,
        start=start,
        classes=(class_id,),
        odds=(1.0,),
        sway=0.004,
        rate=float(rng.uniform(0.3, 0.9)),
        phase=float(rng.uniform(0, 6.28)),
        fill=0.9,
    )
