"""The heap whose entries die anywhere."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pipeline.instant_heap import SLACK, InstantHeap


def test_empty_is_at_infinity() -> None:
    assert InstantHeap(set()).first_at == math.inf


def test_the_dead_are_passed_over() -> None:
    living = {1, 2, 3}
    heap = InstantHeap(living)
    for at, serial in ((1.0, 1), (2.0, 2), (3.0, 3)):
        heap.push(at, serial)
    living -= {1, 2}
    assert (heap.first_at, heap.first) == (3.0, 3)


def test_at_one_instant_the_lower_serial_is_first() -> None:
    heap = InstantHeap({7, 8})
    heap.push(1.0, 8)
    heap.push(1.0, 7)
    assert heap.first == 7


def test_the_dead_behind_a_living_one_are_swept_out() -> None:
    """The first lives on, so that nothing behind it ever comes to the top."""
    living = {0}
    heap = InstantHeap(living)
    heap.push(0.0, 0)
    for serial in range(1, 10_000):
        living.add(serial)
        heap.push(float(serial), serial)
        living.remove(serial)
        heap.sweep()
    assert heap.first == 0
    assert len(heap) <= 2 * len(living) + SLACK


@given(st.lists(st.tuples(st.sampled_from("aad"), st.integers(0, 50))))
def test_it_agrees_with_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    living: dict[int, float] = {}
    heap = InstantHeap(living)
    for serial, (step, number) in enumerate(steps):
        if step == "a":
            living[serial] = float(number)
            heap.push(float(number), serial)
        elif living:
            del living[sorted(living)[number % len(living)]]
            heap.sweep()
        expected = min(((at, each) for each, at in living.items()), default=None)
        assert heap.first_at == (math.inf if expected is None else expected[0])
        if expected is not None:
            assert heap.first == expected[1]
        assert len(heap) <= 2 * len(living) + SLACK + 1
