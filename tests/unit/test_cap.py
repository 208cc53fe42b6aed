"""Caps after a shortage of memory: down at once, up again when it has been earned."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pipeline.cap import FIRST_WAIT_S, LONGEST_WAIT_S, PROOFS, Caps
from tests.builders import SMALL

MOST = SMALL.max_batch


class Device:
    """Has memory for `room` frames; its batches are always as large as the cap allows."""

    def __init__(self, room: int) -> None:
        self.caps, self.room, self.cap, self.now = Caps(), room, 16, 0.0
        self.bucket = SMALL.__class__("b", 1, 32, 32, 16)
        self.shortages = 0

    def run(self, seconds: float = 1.0) -> int:
        self.now += seconds
        size, fits = self.cap, None
        if size > self.room:
            self.shortages += 1
            fits = size
            while fits > self.room:
                fits //= 2
        limit = self.caps.observe("r", self.bucket, size, fits, self.now)
        self.cap = limit or self.cap
        return self.cap


def test_without_a_shortage_there_is_no_cap() -> None:
    caps = Caps()
    assert all(caps.observe("r", SMALL, MOST, None, float(t)) is None for t in range(100))


def test_the_cap_falls_to_what_went_through() -> None:
    assert Caps().observe("r", SMALL, 4, 2, 0.0) == 2
    assert Caps().observe("r", SMALL, 2, 1, 0.0) == 1


def test_a_shortage_of_one_frame_caps_at_one() -> None:
    caps = Caps()
    caps.observe("r", SMALL, 4, 1, 0.0)
    assert caps.observe("r", SMALL, 1, 1, 1.0) is None


def test_a_cap_belongs_to_one_bucket_of_one_route() -> None:
    caps = Caps()
    caps.observe("r", SMALL, 4, 2, 0.0)
    assert caps.observe("other", SMALL, 4, None, 1e9) is None


def test_memory_that_comes_back_is_used_again() -> None:
    device = Device(room=5)
    assert device.run() == 4
    device.room = 100
    while device.cap < 16:
        before = device.cap
        device.run()
        assert device.cap >= before
        assert device.now < 1_000
    assert device.shortages == 1


def test_the_cap_is_not_raised_before_the_wait_or_without_full_batches() -> None:
    device = Device(room=5)
    device.run()
    device.room = 100
    for _ in range(PROOFS - 1):
        assert device.run(10 * FIRST_WAIT_S) == 4
    caps = Caps()
    caps.observe("r", SMALL, 4, 2, 0.0)
    for _ in range(100):  # batches that the cap did not hold down prove nothing
        assert caps.observe("r", SMALL, 1, None, 1e6) is None
    early = Caps()
    early.observe("r", SMALL, 4, 2, 0.0)
    for _ in range(100):
        assert early.observe("r", SMALL, 2, None, FIRST_WAIT_S / 2) is None


def test_probes_become_rare_while_memory_stays_short() -> None:
    """A day at one batch a second: a probe that fails doubles the wait, up to the longest."""
    device = Device(room=5)
    for _ in range(24 * 3600):
        device.run()
    assert device.cap in (4, 6)
    doublings = math.log2(LONGEST_WAIT_S / FIRST_WAIT_S)
    assert device.shortages <= 24 * 3600 / LONGEST_WAIT_S + doublings + 3


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0.0, 100.0)), max_size=200))
def test_the_cap_stays_within_the_bucket_and_a_shortage_always_lowers_it(
    steps: list[tuple[int, float]],
) -> None:
    device = Device(room=16)
    for room, seconds in steps:
        device.room = room
        before = device.cap
        after = device.run(seconds)
        assert 1 <= after <= 16
        if before > room:
            assert after < before


def test_a_second_batch_of_the_same_shortage_lowers_nothing_further() -> None:
    """Two slots: both batches were started before the cap, so one shortage is told twice."""
    caps, bucket = Caps(), SMALL.__class__("b", 1, 32, 32, 16)
    assert caps.observe("r", bucket, 16, 8, 0.0) == 8
    assert caps.observe("r", bucket, 16, 8, 0.1) is None
    assert caps.observe("r", bucket, 16, 4, 0.2) == 4
