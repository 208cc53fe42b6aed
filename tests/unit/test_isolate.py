"""Bisection of a failing batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.isolate import isolate
from schemas.errors import FatalError


@given(st.integers(1, 64), st.data())
def test_culprits_stand_alone_and_everybody_else_succeeds(n: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, n - 1)))

    def run(start: int, stop: int) -> list[int]:
        if bad & set(range(start, stop)):
            raise ValueError("bad row")
        return list(range(start, stop))

    pieces = isolate(n, run, lambda: True)
    assert [row for piece in pieces for row in range(piece.start, piece.stop)] == list(range(n))
    assert {piece.start for piece in pieces if piece.error is not None} == bad
    assert [row for piece in pieces if piece.value for row in piece.value] == sorted(
        set(range(n)) - bad
    )


def test_a_healthy_batch_is_run_once() -> None:
    calls: list[tuple[int, int]] = []
    isolate(16, lambda start, stop: calls.append((start, stop)) or 1, lambda: False)
    assert calls == [(0, 16)]


def test_broken_machinery_is_fatal_not_poison() -> None:
    def run(start: int, stop: int) -> None:
        raise RuntimeError("device lost")

    with pytest.raises(FatalError, match="device lost"):
        isolate(4, run, lambda: False)


def test_a_fatal_error_is_never_bisected() -> None:
    calls = 0

    def run(start: int, stop: int) -> None:
        nonlocal calls
        calls += 1
        raise FatalError("end")

    with pytest.raises(FatalError):
        isolate(4, run, lambda: True)
    assert calls == 1
