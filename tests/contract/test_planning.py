"""Plans of a worker's routes, made by running a fake model with so much memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import torch

from pipeline.bucket import Bucket
from pipeline.memory_plan import PlanError, frame_bytes
from pipeline.memory_trials import MemoryPlanner, Wish
from schemas.errors import ConfigError
from schemas.settings import DeviceSettings, RouteSettings, Settings, load_settings
from tests.fakes.lane import FakeModel
from workers.logs import get_log
from workers.planning import Planning, copies_beside, provisional

T = TypeVar("T")
MIB = 1024 * 1024


class FakeMemory:
    """A device with `free` bytes. Each run of the model takes a MiB per frame."""

    def __init__(self, free: int, model: FakeModel) -> None:
        self.free, self.model, self.released = free, model, 0

    def free_bytes(self) -> int:
        return self.free

    def held_bytes(self) -> int:
        return 0

    def peak_of(self, run: Callable[[], T]) -> tuple[T, int]:
        result = run()
        return result, MIB * max(self.model.batch_sizes[-1:], default=0)

    def release(self) -> None:
        self.released += 1


def a_model(fits: int) -> FakeModel:
    model = FakeModel()

    def refuse(levels: list[int]) -> None:
        if len(levels) > fits:
            raise torch.OutOfMemoryError

    model.before = refuse
    return model


def settings_with(tmp_path: Path, max_batch: object) -> Settings:
    loaded = load_settings(None, overrides=[f"routes.0.buckets.0.max_batch={max_batch}"])
    route = msgspec.structs.replace(loaded.routes[0], buckets=loaded.routes[0].buckets[:1])
    device = DeviceSettings(model_cache_dir=str(tmp_path / "cache"))
    return Settings(routes=[route], device=device)


def plan(
    settings: Settings, model: FakeModel, free: int = 10_000 * MIB
) -> tuple[Bucket, FakeMemory]:
    memory = FakeMemory(free, model)
    planning = Planning(settings, get_log("test"), memory=memory)
    (bucket,) = planning.buckets(settings.routes[0], model)
    return bucket, memory


def test_auto_finds_the_largest_batch_that_ran(tmp_path: Path) -> None:
    model = a_model(fits=1)
    bucket, memory = plan(settings_with(tmp_path, "auto"), model)
    assert bucket.max_batch == 1
    assert memory.released


def test_a_plan_that_memory_limited_is_not_kept(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "auto")
    plan(settings, a_model(fits=1))
    assert not list((tmp_path / "cache").glob("plan-*.json"))


def test_what_auto_found_is_kept_and_verified(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, "auto")
    first, _ = plan(settings, a_model(fits=1_000))
    (file,) = (tmp_path / "cache").glob("plan-*.json")
    model = a_model(fits=1_000)
    second, _ = plan(settings, model)
    assert second.max_batch == first.max_batch
    assert set(model.batch_sizes) == {1, first.max_batch}
    file.write_text("{")
    assert plan(settings, a_model(fits=1_000))[0].max_batch >= 1


def test_what_is_asked_for_is_refused_without_room(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, 16)
    assert plan(settings, a_model(fits=1_000))[0].max_batch == 16
    with pytest.raises(PlanError, match=r"routes\.default\.buckets\.480p.*device\.slots"):
        plan(settings, a_model(fits=1_000), free=10 * MIB)


def test_memory_that_runs_out_while_warming_up_names_what_to_lower(tmp_path: Path) -> None:
    class Greedy(FakeModel):
        def warm_up(self, buckets: object) -> None:
            raise torch.OutOfMemoryError("no more")

    settings, model = settings_with(tmp_path, 4), Greedy()
    planning = Planning(settings, get_log("test"), memory=FakeMemory(10**12, model))
    with pytest.raises(ConfigError, match="max_batch"):
        planning.warm_up(settings.routes[0], model, ())


def test_auto_asks_of_an_exported_file_what_it_says_itself(tmp_path: Path) -> None:
    (route,) = settings_with(tmp_path, "auto").routes
    assert [b.max_batch for b in provisional(route)] == [64]
    file = msgspec.structs.replace(route, model="some.onnx")
    assert isinstance(file, RouteSettings)
    assert [b.max_batch for b in provisional(file)] == [1]


def test_on_a_gpu_graphs_and_dali_hold_frames_beside_the_slots() -> None:
    device = DeviceSettings()
    assert copies_beside(device, "cuda") == 2
    assert copies_beside(msgspec.structs.replace(device, cuda_graphs=False), "cuda") == 1
    assert (
        copies_beside(msgspec.structs.replace(device, cuda_graphs=False, decoder="opencv"), "cuda")
        == 0
    )
    assert copies_beside(device, "cpu") == 0


def test_every_shape_has_its_own_frames_beside_the_slots() -> None:
    memory = FakeMemory(10**12, FakeModel())
    planner = MemoryPlanner(memory, 1.0, 2, copies=2)
    wishes = [Wish(Bucket(name, 1, side, side, 4), auto=False) for name, side in SIDES]
    plans = planner.plan("r", wishes, lambda shape, n: 1.0, 1)
    (_, small), (_, large) = SIDES
    each = frame_bytes(small, small, 1)
    assert plans["a"].buffers_bytes == 2 * 4 * each + 2 * 4 * small * small * 3
    each = frame_bytes(large, large, 1)
    both = small * small * 3 + large * large * 3
    assert plans["b"].buffers_bytes == 2 * 4 * each + 2 * 4 * both


SIDES = (("a", 32), ("b", 64))
