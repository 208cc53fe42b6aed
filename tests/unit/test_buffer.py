"""A bounded buffer whose oldest items make room."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.buffer import DropOldest


@given(st.integers(1, 8), st.integers(1, 500), st.lists(st.integers(1, 200), max_size=60))
def test_bounds_hold_and_nothing_is_lost_uncounted(
    max_items: int, max_bytes: int, sizes: list[int]
) -> None:
    buffer = DropOldest[int](max_items, max_bytes)
    gone: list[int] = []
    for i, size in enumerate(sizes):
        gone += buffer.put(i, size)
        assert len(buffer) <= max_items
        assert buffer.nbytes <= max_bytes or len(buffer) == 1
    left = []
    while (item := buffer.take()) is not None:
        left.append(item)
    # The oldest went, in order; the newest stayed.
    assert gone + left == list(range(len(sizes)))
    assert buffer.nbytes == 0


def test_clearing_says_what_was_there() -> None:
    buffer = DropOldest[str](4, 100)
    buffer.put("a", 1)
    buffer.put("b", 1)
    assert buffer.clear() == ["a", "b"]
    assert (buffer.take(), buffer.nbytes) == (None, 0)


def test_a_buffer_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        DropOldest[int](0, 1)
