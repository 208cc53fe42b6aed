"""Surfaces are measured once, kept, shared, and measured anew when what is kept is of no use."""

from __future__ import annotations

import fcntl
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline import model_cache, surface_cache
from pipeline.bucket import Bucket
from pipeline.calibrate import Extent, runs_of
from pipeline.model_cache import CacheError, ModelCache
from pipeline.surface_cache import Calibrated, Calibration
from tests.fakes.lane import FakeModel

BUCKETS = (Bucket("a", 5_000, 32, 64, 4), Bucket("b", 50_000, 64, 96, 2))


@pytest.fixture(autouse=True)
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_cache, "QUICK", Extent(3_600.0, 1, every=False))
    monkeypatch.setattr(surface_cache, "FULL", Extent(3_600.0, 1, every=True))


@pytest.fixture
def calibration(tmp_path: Path) -> Calibration:
    return Calibration(ModelCache(tmp_path / "cache"))


def kept(calibration: Calibration) -> list[Path]:
    assert calibration.cache is not None
    return sorted(calibration.cache.folder.glob("surface-*.json"))


def measure(calibration: Calibration) -> tuple[Calibrated, list[int]]:
    model = FakeModel()
    return calibration.surface(model, BUCKETS), model.batch_sizes


def test_the_second_start_measures_nothing(calibration: Calibration) -> None:
    first, ran = measure(calibration)
    assert not first.cached
    assert set(ran) == {1, 2, 4}
    second, ran = measure(calibration)
    assert second.cached
    assert not ran
    assert second.seconds == first.seconds
    by_bucket = second.of(BUCKETS)
    assert set(by_bucket) == {"a", "b"}
    assert set(by_bucket["a"]) == {1, 2, 4}


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"\xff\xfe", b'{"full": false, "shapes": {}}',
     b'{"full": false, "shapes": {"32x64": {"1": -1.0}, "64x96": {"1": 1.0}}}',
     b'{"full": false, "shapes": {"32x64": {"0": 1.0}, "64x96": {"1": 1.0}}}',
     b'{"full": false, "shapes": {"32x64": {"1": "x"}, "64x96": {"1": 1.0}}}'],
)  # fmt: skip
def test_a_damaged_file_is_measured_anew(calibration: Calibration, damage: bytes) -> None:
    measure(calibration)
    (file,) = kept(calibration)
    file.write_bytes(damage)
    found, ran = measure(calibration)
    assert not found.cached
    assert ran
    assert measure(calibration)[0].cached


def test_other_circumstances_have_a_surface_of_their_own(calibration: Calibration) -> None:
    measure(calibration)
    found, _ = measure(replace(calibration, threads=3))
    assert not found.cached
    assert len(kept(calibration)) == 2


def test_a_full_surface_does_for_quick_but_not_the_other_way(calibration: Calibration) -> None:
    measure(calibration)
    full = replace(calibration, full=True)
    assert not measure(full)[0].cached
    assert measure(full)[0].cached
    assert measure(calibration)[0].cached


def test_workers_that_start_together_measure_once(calibration: Calibration) -> None:
    model, found = FakeModel(), list[Calibrated]()

    def start() -> None:
        found.append(calibration.surface(model, BUCKETS))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert sorted(one.cached for one in found) == [False, True, True, True]
    assert len({str(one.seconds) for one in found}) == 1


def test_what_a_drain_cut_short_is_not_kept(calibration: Calibration) -> None:
    found, ran = measure(replace(calibration, stopping=lambda: True))
    assert not found.seconds
    assert not ran
    assert not kept(calibration)


def test_a_drain_does_not_wait_for_another_process_that_measures(
    calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_cache, "_LOOK_S", 0.0)
    measure(calibration)[0].forget()
    assert calibration.cache is not None
    (lock,) = calibration.cache.folder.glob(".surface-*.lock")
    looks = iter([False, False, True])
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        found, ran = measure(replace(calibration, stopping=lambda: next(looks, True)))
    assert (next(looks, None), dict(found.seconds), ran) == (None, {}, [])
    assert not kept(calibration)


def test_a_surface_that_proved_wrong_is_forgotten(calibration: Calibration) -> None:
    measure(calibration)[0].forget()
    assert not kept(calibration)
    again, ran = measure(calibration)
    assert ran
    again.forget()
    again.forget()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="model_cache_dir"):
        measure(Calibration(ModelCache(tmp_path / "file" / "cache")))
    assert measure(Calibration(None))[0].seconds


def test_a_run_without_memory_says_so_and_leaves_nothing() -> None:
    def refuse(levels: list[int]) -> None:
        raise torch.OutOfMemoryError

    model = FakeModel()
    model.before = refuse
    with pytest.raises(MemoryError):
        runs_of(model, lambda: 0.0)(surface_cache.bucket_shapes(BUCKETS)[0], 2)
