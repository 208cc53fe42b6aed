"""Two clocks, tied together once."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from workers.anchor import Anchor


def test_the_anchor_is_read_from_both_clocks() -> None:
    before_us = time.time_ns() // 1000
    anchor = Anchor.now(lambda: 12.5)
    assert anchor.monotonic_at == 12.5
    assert before_us <= anchor.unix_us <= time.time_ns() // 1000


@given(st.integers(0, 2**52))
def test_unix_times_survive_the_way_there_and_back(unix_us: int) -> None:
    anchor = Anchor(monotonic_at=1_000.0, unix_us=1_700_000_000_000_000)
    back = anchor.to_unix_us(anchor.to_monotonic(unix_us))
    assert abs(back - unix_us) <= 1


def test_seconds_are_microseconds() -> None:
    anchor = Anchor(monotonic_at=10.0, unix_us=5_000_000)
    assert anchor.to_unix_us(10.25) == 5_250_000
    assert anchor.to_monotonic(4_000_000) == 9.0
