"""The demo's pictures: drawn and encoded before the run, so that playing them costs little."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.scenes import Scene, Truth
from frameloom.demo_streams import StreamKind, StreamPlan
from frameloom.jpeg import encode_jpeg

JPEG_QUALITY = 85
_STEP_S = 0.2
# Seconds between two stills: long enough for another set of objects.
_STILLS_APART = 17


@dataclass(frozen=True, slots=True, eq=False)
class Shot:
    """One picture of a loop: its JPEG and exactly what is in it."""

    jpeg: bytes
    truths: tuple[Truth, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Footage:
    """A loop of pictures, at least one."""

    shots: tuple[Shot, ...]


def count_shots(plans: Sequence[StreamPlan]) -> int:
    """How many pictures `draw_footage` will draw."""
    return sum(kind.frames for kind, _ in _loops(plans))


def draw_footage(
    plans: Sequence[StreamPlan], on_shot: Callable[[], None] = lambda: None
) -> dict[str, Footage]:
    """Draw and encode every stream's loop, on all cores. Returns stream id → its loop.

    Args:
        plans: what to draw.
        on_shot: called after each picture, from any thread.
    """
    loops = _loops(plans)

    def draw(key: tuple[StreamKind, int]) -> Footage:
        kind, _ = key
        seed = loops[key]
        shots: list[Shot] = []
        scene = Scene(seed, kind.width, kind.height)
        for i in range(kind.frames):
            if kind.stills and i:
                scene = Scene(seed + i * _STILLS_APART, kind.width, kind.height)
            picture, truths = scene.frame(_STEP_S * i)
            shots.append(Shot(encode_jpeg(picture, JPEG_QUALITY), tuple(truths)))
            on_shot()
        return Footage(tuple(shots))

    # Longest first, so that no core is left alone with the last one.
    order = sorted(loops, key=lambda key: -key[0].width * key[0].height * key[0].frames)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        drawn = dict(zip(order, pool.map(draw, order), strict=True))
    return {plan.stream: drawn[plan.kind, plan.footage] for plan in plans}


def _loops(plans: Sequence[StreamPlan]) -> dict[tuple[StreamKind, int], int]:
    """(kind, footage) → scene seed."""
    return {(plan.kind, plan.footage): plan.seed for plan in plans}
