"""Measured surfaces, kept between starts beside exports and choices of backends."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pipeline.backend_model import bucket_shapes
from pipeline.backend_speed import machine_clock
from pipeline.bucket import Bucket
from pipeline.calibrate import FULL, QUICK, Extent, Measured, ShapeKey, calibrate, runs_of
from pipeline.circumstances import card, driver, processor
from pipeline.exported import Shape, library_versions
from pipeline.model_cache import ModelCache, key_of
from pipeline.ports import Model

RECIPE = 1
"""Raise it when calibration measures differently: what is kept is measured anew."""


class KeptSurface(msgspec.Struct, frozen=True, kw_only=True):
    """A surface on disk.

    Attributes:
        full: measured thoroughly.
        shapes: `HxW` → batch size → seconds of the model.
    """

    full: bool
    shapes: dict[str, dict[int, float]]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A route's surface.

    Attributes:
        seconds: (height, width) → batch size → seconds of the model.
        cached: measured at an earlier start.
        forget: drop what is kept, because it proved wrong. Any thread may call it.
    """

    seconds: Mapping[ShapeKey, Mapping[int, float]]
    cached: bool
    forget: Callable[[], None] = lambda: None

    def of(self, buckets: Sequence[Bucket]) -> dict[str, Mapping[int, float]]:
        """Bucket's name → batch size → seconds; without buckets of which nothing is known."""
        shapes = {bucket.name: (bucket.height, bucket.width) for bucket in buckets}
        return {name: self.seconds[key] for name, key in shapes.items() if key in self.seconds}


@dataclass(frozen=True, slots=True)
class Calibration:
    """How surfaces are come by.

    Attributes:
        cache: where they are kept; None keeps nothing.
        full: measure thoroughly; a surface that was measured quickly does not do then.
        threads: the model's, as in `device.model_threads`.
        graphs: the model is behind CUDA graphs.
        anew: measure in any case.
        stopping: once it says yes, measuring ends, and what was not finished is not kept.
    """

    cache: ModelCache | None
    full: bool = False
    threads: int = 0
    graphs: bool = False
    anew: bool = False
    stopping: Callable[[], bool] = lambda: False

    @property
    def extent(self) -> Extent:
        return FULL if self.full else QUICK

    def surface(self, model: Model, buckets: Sequence[Bucket]) -> Calibrated:
        """Read or measure it, for a model that is warmed up. Of several processes that lack the
        same surface one measures, and the others wait for it: they would disturb each other. A
        wait ends with `stopping`, and then nothing is measured.

        Raises:
            CacheError: the cache's folder cannot be written.
            FatalError: the device failed.
        """
        shapes = bucket_shapes(buckets)
        if self.cache is None:
            return Calibrated(self._measure(model, shapes).seconds, cached=False)
        cache = self.cache
        cache.open()
        name = f"surface-{self._key(model, shapes)}"

        def forget() -> None:
            cache.remove(name)

        with cache.making(name, self.stopping):
            kept = None if self.anew else cache.read(name, KeptSurface)
            if kept is not None and (kept.full or not self.full) and _is_sound(kept, shapes):
                seconds = {key: kept.shapes[_named(key)] for key in _keys(shapes)}
                return Calibrated(seconds, cached=True, forget=forget)
            measured = self._measure(model, shapes)
            found = KeptSurface(
                full=self.full, shapes={_named(k): dict(s) for k, s in measured.seconds.items()}
            )
            if measured.whole and _is_sound(found, shapes):
                cache.write(name, found)
            return Calibrated(measured.seconds, cached=False, forget=forget)

    def _measure(self, model: Model, shapes: Sequence[Shape]) -> Measured:
        run = runs_of(model, machine_clock(str(model.device), self.threads))
        return calibrate(run, shapes, self.extent, stopping=self.stopping)

    def _key(self, model: Model, shapes: Sequence[Shape]) -> str:
        device = str(model.device)
        return key_of(
            {
                "recipe": RECIPE, "digest": model.info.version, "backend": model.info.backend,
                "shapes": shapes, "device": device, "card": card(device), "driver": driver(device),
                "processor": processor(), "cores": len(os.sched_getaffinity(0)),
                "threads": self.threads, "graphs": self.graphs, "versions": library_versions(),
            }
        )  # fmt: skip


def _is_sound(kept: KeptSurface, shapes: Sequence[Shape]) -> bool:
    """Whether a document, whoever wrote it, holds latencies of every shape."""
    for shape in shapes:
        seconds = kept.shapes.get(_named((shape.height, shape.width)))
        if not seconds or min(seconds) < 1:
            return False
        if not all(0 < s < math.inf for s in seconds.values()):
            return False
    return True


def _keys(shapes: Sequence[Shape]) -> list[ShapeKey]:
    return [(shape.height, shape.width) for shape in shapes]


def _named(key: ShapeKey) -> str:
    return f"{key[0]}x{key[1]}"
