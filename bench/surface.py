"""The surface of every route's model: `frameloom bench surface`.

What the worker measures at its start, on the same model behind the same code, shown: latency and
pictures per second by batch size, and where twice the batch brings less than 5 % more. On a CPU the
figures are processor time over the model's threads, so other programs hardly touch them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pipeline.latency import Table
from schemas.settings import Settings
from workers.lanes import calibration_of, load_route
from workers.logs import get_log
from workers.planning import Planning


@dataclass(frozen=True, slots=True)
class SurfaceRow:
    """One batch size of one bucket.

    Attributes:
        milliseconds: of the model, for the whole batch.
        img_per_s: at that latency, one batch after the other.
    """

    batch: int
    milliseconds: float
    img_per_s: float


@dataclass(frozen=True, slots=True)
class BucketSurface:
    """One bucket of one route.

    Attributes:
        plateau: the smallest batch whose double brings less than 5 % more pictures per second;
            None if none was seen to.
    """

    route: str
    bucket: str
    shape: str
    backend: str
    rows: Sequence[SurfaceRow]
    plateau: int | None


def measure(settings: Settings, *, full: bool) -> list[BucketSurface]:
    """Measure every route anew, and keep what was measured for the workers that start next.

    Args:
        full: up to a minute for each route; else about two seconds.

    Raises:
        ConfigError: a model or the cache's folder cannot be had.
    """
    found: list[BucketSurface] = []
    device = settings.device.name
    planning = Planning(settings, get_log("frameloom.bench"))
    for route in settings.routes:
        loaded, buckets = load_route(settings, route, device, planning)
        device = str(loaded.device)
        calibration = replace(calibration_of(settings), full=full, anew=True)
        surface = calibration.surface(loaded, buckets).of(buckets)
        found += [
            BucketSurface(
                route.name, bucket.name, f"{bucket.height}x{bucket.width}", loaded.info.backend,
                rows_of(surface[bucket.name]), Table(surface[bucket.name]).plateau(),
            )
            for bucket in buckets if bucket.name in surface
        ]  # fmt: skip
    return found


def rows_of(seconds: Mapping[int, float]) -> list[SurfaceRow]:
    """Of the calibration's own figures, rising."""
    return [
        SurfaceRow(n, round(s * 1e3, 3), round(n / s, 1)) for n, s in sorted(seconds.items())
    ]  # fmt: skip


def document(surfaces: Sequence[BucketSurface]) -> list[dict[str, object]]:
    """As JSON."""
    return [asdict(surface) for surface in surfaces]
