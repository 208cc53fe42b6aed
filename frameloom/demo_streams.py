"""The demo's cast: which streams it plays, and how each of them sends."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.frame import Form


@dataclass(frozen=True, slots=True)
class StreamKind:
    """What all streams of a kind share.

    Attributes:
        name: stem of the streams' ids.
        width, height: of its pictures, pixels.
        fps: frames per second that it nominally sends.
        frames: pictures in its loop.
        form: how a frame travels.
        ttl_ms: declared time to live, or None.
        stills: every picture is a scene of its own, and no interval is declared.
    """

    name: str
    width: int
    height: int
    fps: float
    frames: int
    form: Form = Form.ENVELOPE
    ttl_ms: int | None = None
    stills: bool = False


KINDS: tuple[StreamKind, ...] = (
    StreamKind("gate-480p", 854, 480, 15.0, 24),
    StreamKind("avenue-1080p", 1920, 1080, 10.0, 16),
    StreamKind("plaza-4k", 3840, 2160, 5.0, 6, ttl_ms=4000),
    StreamKind("stills-portrait", 1080, 1920, 0.5, 6, stills=True),
    StreamKind("bare-jpeg", 640, 360, 8.0, 16, form=Form.BARE),
    StreamKind("json-base64", 1280, 720, 4.0, 12, form=Form.JSON),
)
"""One stream of each kind is always played; more streams go round them again."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One stream of the demo.

    Attributes:
        stream: its id and the record key.
        kind: what it sends.
        seed: of its scenes.
        footage: streams of one kind with the same number share a loop of pictures: drawing one
            for each of many streams would take minutes.
    """

    stream: str
    kind: StreamKind
    seed: int
    footage: int


_LOOPS_PER_KIND = 2


def plan_streams(count: int, seed: int) -> tuple[StreamPlan, ...]:
    """`count` streams, at least one of every kind.

    Raises:
        ValueError: fewer streams than kinds.
    """
    if count < len(KINDS):
        raise ValueError(f"the demo plays at least {len(KINDS)} streams, not {count}")
    plans: list[StreamPlan] = []
    for i in range(count):
        kind, lap = KINDS[i % len(KINDS)], i // len(KINDS)
        footage = lap % _LOOPS_PER_KIND
        scene_seed = seed * 1000 + (i % len(KINDS)) * 37 + footage * 401
        stream = kind.name if lap == 0 else f"{kind.name}-{lap + 1}"
        plans.append(StreamPlan(stream, kind, scene_seed, footage))
    return tuple(plans)
