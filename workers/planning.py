"""The memory plan of a worker: what its settings ask for, on the device that it has.

What `max_batch: auto` came to is kept beside the surfaces; a later start only verifies it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from pipeline.backend_files import Kind, kind_of
from pipeline.backend_model import ExportedModel
from pipeline.backend_speed import machine_clock
from pipeline.bucket import Bucket
from pipeline.calibrate import runs_of
from pipeline.circumstances import card, driver, processor
from pipeline.cuda_runtime import device_errors
from pipeline.exported import library_versions
from pipeline.memory import Memory, memory_of
from pipeline.memory_plan import BucketPlan, LimitedBy
from pipeline.memory_trials import MemoryPlanner, Wish, planned
from pipeline.model_cache import CacheError, ModelCache, default_folder, key_of
from pipeline.ports import Model
from schemas.errors import ConfigError
from schemas.settings import DeviceSettings, RouteSettings, Settings
from workers.assembly import bucket_table
from workers.logs import Log

MIB = 1024 * 1024


class KeptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `auto` came to, on disk: bucket's name → its largest batch."""

    max_batch: dict[str, int]


class Planning:
    """Plans the routes of one worker, one after the other.

    Args:
        settings: of the worker.
        log: one line for each bucket.
        stopping: once it says yes, no larger batches are looked for.
        memory: of the device; None for what the first model's device has.
    """

    def __init__(
        self,
        settings: Settings,
        log: Log,
        stopping: Callable[[], bool] = lambda: False,
        memory: Memory | None = None,
    ) -> None:
        self.log = log
        self._settings = settings
        self.stopping = stopping
        self._memory = memory
        self._planner: MemoryPlanner | None = None

    def buckets(self, route: RouteSettings, model: Model) -> tuple[Bucket, ...]:
        """The route's buckets with batches as planned, for its model, not warmed up yet.

        Raises:
            ConfigError: one has no room; says what to lower.
        """

        planner = self._made(model)
        asked = _ceilings(route, model)
        autos = {bucket.name for bucket in route.buckets if bucket.max_batch == "auto"}
        kept = self._kept(route, model, asked) if autos else {}
        wishes = [
            Wish(bucket, bucket.name in autos, kept.get(bucket.name)) for bucket in asked
        ]  # fmt: skip
        clock = machine_clock(str(model.device), self._settings.device.model_threads)
        plans = planner.plan(route.name, wishes, runs_of(model, clock), len(model.labels))
        for name, plan in plans.items():
            self.log.info(
                "memory_plan", route=route.name, bucket=name, max_batch=plan.max_batch,
                limited_by=plan.limited_by.value, slots=self._settings.device.slots,
                buffers_mib=_mib(plan.buffers_bytes), workspace_mib=_mib(plan.workspace_bytes),
                free_mib=_mib(self._of(model).free_bytes()),
            )  # fmt: skip
        if autos and not self.stopping():
            self._keep(route, model, asked, plans)
        return planned(asked, plans)

    def warm_up(self, route: RouteSettings, model: Model, buckets: Sequence[Bucket]) -> None:
        """Run the largest batches as planned, and say what they took.

        Raises:
            ConfigError: there was no memory for them after all.
        """

        memory = self._of(model)
        before = memory.held_bytes()
        try:
            with device_errors():
                _, peak = memory.peak_of(lambda: model.warm_up(buckets))
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise ConfigError(
                f"routes.{route.name}: memory ran out for the largest batches of its buckets: "
                f"lower their max_batch (or set it to auto), or device.slots ({error})"
            ) from error
        self.log.info(
            "memory_measured", route=route.name, held_mib=_mib(memory.held_bytes()),
            peak_mib=_mib(max(0, peak - before)), free_mib=_mib(memory.free_bytes()),
        )  # fmt: skip

    def _of(self, model: Model) -> Memory:
        if self._memory is None:
            self._memory = memory_of(model.device)
        return self._memory

    def _made(self, model: Model) -> MemoryPlanner:
        if self._planner is None:
            device = self._settings.device
            self._planner = MemoryPlanner(
                self._of(model), device.memory_fraction, device.slots, self.stopping,
                copies_beside(device, model.device.type),
            )  # fmt: skip
        return self._planner

    def _kept(
        self, route: RouteSettings, model: Model, asked: Sequence[Bucket]
    ) -> Mapping[str, int]:

        kept = ModelCache(self._folder()).read(self._name(route, model, asked), KeptPlan)
        return {} if kept is None else {n: most for n, most in kept.max_batch.items() if most > 0}

    def _keep(
        self,
        route: RouteSettings,
        model: Model,
        asked: Sequence[Bucket],
        plans: Mapping[str, BucketPlan],
    ) -> None:

        # What memory allowed may be more the next time.
        if any(plan.limited_by is LimitedBy.MEMORY for plan in plans.values()):
            return
        with suppress(CacheError):
            cache = ModelCache(self._folder())
            cache.open()
            found = {name: plan.max_batch for name, plan in plans.items()}
            cache.write(self._name(route, model, asked), KeptPlan(max_batch=found))

    def _folder(self) -> Path:

        chosen = self._settings.device.model_cache_dir
        return default_folder() if chosen is None else Path(chosen)

    def _name(self, route: RouteSettings, model: Model, asked: Sequence[Bucket]) -> str:

        device = str(model.device)
        shapes = [(b.name, b.height, b.width, b.max_batch) for b in asked]
        parts = {
            "digest": model.info.version, "backend": model.info.backend, "shapes": shapes,
            "auto": [bucket.max_batch for bucket in route.buckets], "device": device,
            "card": card(device), "driver": driver(device), "processor": processor(),
            "threads": self._settings.device.model_threads, "versions": library_versions(),
        }  # fmt: skip
        return f"plan-{key_of(parts)}"


def copies_beside(device: DeviceSettings, kind: str) -> int:
    """How often a shape's largest batch of frames is on the device and in no slot: as the input of
    CUDA graphs (all sizes share it), and as what DALI's pipeline decoded last.

    Args:
        kind: of device, `cpu` or `cuda`.
    """
    if kind != "cuda":
        return 0
    return device.cuda_graphs + (device.decoder in ("auto", "dali"))


def provisional(route: RouteSettings) -> tuple[Bucket, ...]:
    """The route's buckets before the plan: `auto` stands as the most that it can become for
    weights, and as one frame for an exported file, which says itself how many it takes."""

    buckets = tuple(bucket_table(route).buckets)
    if kind_of(route.model) is Kind.TORCH:
        return buckets
    autos = {bucket.name for bucket in route.buckets if bucket.max_batch == "auto"}
    return tuple(replace(b, max_batch=1) if b.name in autos else b for b in buckets)


def _ceilings(route: RouteSettings, model: Model) -> tuple[Bucket, ...]:
    """The route's buckets; `auto` as the most that the model takes."""
    buckets = tuple(bucket_table(route).buckets)
    if not isinstance(model, ExportedModel) or model.about.dynamic:
        return buckets
    takes = {(shape.height, shape.width): shape.max_batch for shape in model.about.shapes}
    return tuple(
        replace(b, max_batch=min(b.max_batch, takes.get((b.height, b.width), b.max_batch)))
        for b in buckets
    )


def _mib(nbytes: int) -> int:
    return round(nbytes / MIB)
