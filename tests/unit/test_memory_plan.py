"""The memory plan on a fake device: what fits, what is run, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.memory_plan import BucketSearch, LimitedBy, PlanError, Room, Trial, frame_bytes

WHERE = "routes.default.buckets.480p"


@dataclass
class Device:
    """Has memory for `fits` frames; a batch takes `fixed` bytes and `each` per frame, and twice the
    frames are twice as fast up to `plateau`."""

    fits: int = 10_000
    each: int = 1_000
    fixed: int = 5_000
    plateau: int = 10_000
    ran: list[int] = field(default_factory=list[int])

    def run(self, n: int) -> Trial | None:
        self.ran.append(n)
        if n > self.fits:
            return None
        return Trial(max(1.0, n / self.plateau), self.fixed + n * self.each)


def room(budget: int = 10**9, *, slots: int = 2, frame: int = 100, taken: int = 0) -> Room:
    return Room(budget, slots, frame, taken)


def search(device: Device, room_: Room | None = None) -> BucketSearch:
    return BucketSearch(WHERE, room_ or room(), device.run)


def test_what_the_settings_ask_for_is_computed_from_small_batches() -> None:
    device = Device()
    plan = search(device).asked(16)
    assert device.ran == [1, 2]
    assert plan.limited_by is LimitedBy.ASKED
    assert (plan.max_batch, plan.buffers_bytes) == (16, 2 * 16 * 100)
    assert plan.workspace_bytes == 5_000 + 16 * 1_000


def test_what_stands_beside_the_slots_counts_once() -> None:
    """The input of CUDA graphs, and what DALI decoded last; those of earlier shapes stay."""
    whole = Room(10**9, 3, 100, beside_frame_bytes=60, beside_bytes=7_000)
    assert search(Device(), whole).asked(16).buffers_bytes == 3 * 16 * 100 + 16 * 60 + 7_000
    need = 3 * 16 * 100 + 16 * 60 + (5_000 + 16 * 1_000)
    assert search(Device(), Room(need, 3, 100, beside_frame_bytes=60)).asked(16).max_batch == 16
    with pytest.raises(PlanError, match="batches of 16"):
        search(Device(), Room(need - 1, 3, 100, beside_frame_bytes=60)).asked(16)


def test_what_has_no_room_is_refused_by_name_and_never_run() -> None:
    device = Device()
    with pytest.raises(PlanError, match=r"480p: no memory for batches of 16.*max_batch.*slots"):
        search(device, room(20_000)).asked(16)
    assert device.ran == [1, 2]
    with pytest.raises(PlanError, match="batches of 2"):
        search(Device(fits=1)).asked(16)
    with pytest.raises(PlanError, match=r"batches of 1.*height and width"):
        search(Device(fits=0)).asked(1)
    with pytest.raises(PlanError, match="batches of 1"):
        search(Device(fits=0)).largest(64)


def test_the_largest_batch_is_found_and_was_run() -> None:
    device = Device(fits=23)
    plan = search(device).largest(64)
    assert (plan.max_batch, plan.limited_by) == (23, LimitedBy.MEMORY)
    assert 23 in device.ran
    assert plan.workspace_bytes == 5_000 + 23 * 1_000


def test_the_plateau_caps_it() -> None:
    plan = search(Device(plateau=8)).largest(64)
    assert (plan.max_batch, plan.limited_by) == (8, LimitedBy.PLATEAU)


def test_one_slow_measurement_is_no_plateau() -> None:
    device = Device(plateau=16)

    def run(n: int) -> Trial | None:
        trial = device.run(n)
        assert trial is not None
        return Trial(2.0 * trial.seconds, trial.peak_bytes) if n == 2 else trial

    plan = BucketSearch(WHERE, room(), run).largest(64)
    assert (plan.max_batch, plan.limited_by) == (16, LimitedBy.PLATEAU)


def test_the_ceiling_caps_it() -> None:
    assert search(Device()).largest(12).max_batch == 12
    plan = search(Device()).largest(1)
    assert (plan.max_batch, plan.limited_by) == (1, LimitedBy.CEILING)


def test_buffers_of_other_buckets_count_once() -> None:
    assert room(frame=100, taken=5_000).buffers(10) == 2 * 5_000
    assert room(frame=100, taken=500).buffers(10) == 2 * 1_000
    assert search(Device(), room(20_000 + 2 * 1_000, taken=1_000)).asked(8).max_batch == 8
    with pytest.raises(PlanError):
        search(Device(), room(20_000, taken=10_000)).asked(8)


def test_an_earlier_find_is_verified_by_one_run() -> None:
    device = Device(fits=32)
    assert search(device).verified(16, 64).max_batch == 16
    assert device.ran == [1, 16]
    device = Device(fits=9)
    assert search(device).verified(16, 64).max_batch == 9


@given(
    st.integers(1, 80), st.integers(1, 5_000), st.integers(0, 50_000), st.integers(0, 300_000),
    st.integers(1, 64),
)  # fmt: skip
def test_a_plan_always_fits_and_is_the_largest_that_does(
    fits: int, each: int, fixed: int, budget: int, ceiling: int
) -> None:
    device, room_ = Device(fits, each, fixed), room(budget, frame=10)

    def has_room(n: int) -> bool:
        return n <= fits and room_.buffers(n) + fixed + n * each <= budget

    if not has_room(1):
        with pytest.raises(PlanError):
            search(device, room_).largest(ceiling)
        return
    plan = search(device, room_).largest(ceiling)
    assert has_room(plan.max_batch)
    assert plan.max_batch in device.ran
    # Figures are extended carefully before two sizes are known, so a batch of two may be left out.
    if plan.max_batch > 1:
        assert plan.max_batch == ceiling or not has_room(plan.max_batch + 1 + ceiling // 8)


def test_a_frame_in_a_slot() -> None:
    anchors = 80 * 48 + 40 * 24 + 20 * 12
    assert frame_bytes(384, 640, 80) == 384 * 640 * 3 + anchors * 84 * 4
