"""Calibration: what is measured, within which time, and when it ends early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pipeline.calibrate import FULL, QUICK, Extent, batch_sizes, calibrate
from pipeline.exported import Shape
from tests.fakes.clock import VirtualClock

WIDE, TALL, LARGE = Shape(256, 448, 16), Shape(448, 256, 16), Shape(384, 640, 8)


@dataclass
class Machine:
    """Runs take 10 ms and `frame_s` a frame; more than `fits` frames find no memory."""

    frame_s: float = 0.005
    fits: int = 1_000
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(0.0))
    ran: list[tuple[Shape, int]] = field(default_factory=list[tuple[Shape, int]])
    after: Callable[[int], None] = lambda _: None

    def run(self, shape: Shape, n: int) -> float:
        self.ran.append((shape, n))
        if n > self.fits:
            raise MemoryError
        seconds = 0.010 + self.frame_s * n
        self.clock.advance(seconds)
        self.after(len(self.ran))
        return seconds


def test_sizes_up_to_the_largest() -> None:
    assert batch_sizes(16, every=False) == (1, 4, 16)
    assert batch_sizes(1, every=False) == (1,)
    assert batch_sizes(2, every=False) == (1, 2)
    assert batch_sizes(12, every=True) == (1, 2, 4, 8, 12)
    assert batch_sizes(1, every=True) == (1,)


def test_a_shape_and_the_same_one_turned_count_as_one_when_quick() -> None:
    machine = Machine()
    found = calibrate(machine.run, [WIDE, TALL, LARGE], QUICK, clock=machine.clock)
    assert {shape for shape, _ in machine.ran} == {WIDE, LARGE}
    assert found.whole
    assert found.seconds[448, 256] == found.seconds[256, 448]
    assert found.seconds[256, 448] == pytest.approx({n: 0.010 + 0.005 * n for n in (1, 4, 16)})
    assert set(found.seconds[384, 640]) == {1, 3, 8}


def test_every_shape_and_power_of_two_when_full() -> None:
    machine = Machine()
    found = calibrate(machine.run, [WIDE, TALL], FULL, clock=machine.clock)
    assert {shape for shape, _ in machine.ran} == {WIDE, TALL}
    assert set(found.seconds[448, 256]) == {1, 2, 4, 8, 16}


def test_a_slow_model_is_measured_within_the_budget() -> None:
    machine = Machine(frame_s=1.0)
    found = calibrate(machine.run, [WIDE, LARGE], QUICK, clock=machine.clock)
    once = {1: pytest.approx(1.01)}
    assert found.seconds == {(256, 448): once, (384, 640): once}
    assert machine.clock() <= QUICK.budget_s + 1.01
    assert found.whole


def test_the_best_of_the_rounds_counts() -> None:
    slow = iter([3.0, 1.0, 2.0])
    found = calibrate(
        lambda shape, n: next(slow), [Shape(32, 32, 1)], Extent(10.0, 3, every=True),
        clock=lambda: 0.0,
    )  # fmt: skip
    assert found.seconds == {(32, 32): {1: 1.0}}


def test_sizes_without_memory_are_left_out() -> None:
    machine = Machine(fits=4)
    found = calibrate(machine.run, [WIDE], QUICK, clock=machine.clock)
    assert set(found.seconds[256, 448]) == {1, 4}


def test_a_drain_ends_it() -> None:
    machine = Machine()
    found = calibrate(
        machine.run, [WIDE, LARGE], FULL, clock=machine.clock,
        stopping=lambda: len(machine.ran) >= 3,
    )  # fmt: skip
    assert not found.whole
    assert len(machine.ran) == 3
