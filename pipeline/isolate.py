"""Bisection: find the one item that makes a batch fail, and let the others succeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from schemas.errors import FatalError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """Rows [start, stop) of a batch: their joint value, or (a single row) the error it raised."""

    start: int
    stop: int
    value: T | None = None
    error: Exception | None = None


def isolate(n: int, run: Callable[[int, int], T], healthy: Callable[[], bool]) -> list[Piece[T]]:
    """Run rows [0, n) as one piece; where that raises, halve until the culprits stand alone.

    Args:
        n: rows, ≥ 1.
        run: computes rows [start, stop); any `Exception` counts as a failure of those rows.
        healthy: asked once when a culprit was found: does `run`'s machinery still work on
            harmless input? If not, the rows are innocent.

    Returns:
        Pieces that cover [0, n) in order.

    Raises:
        FatalError: the machinery is broken, not the rows. Also raised through from `run`.
    """
    pieces = list(_halve(0, n, run))
    culprits = [piece for piece in pieces if piece.error is not None]
    if culprits and not healthy():
        error = culprits[0].error
        raise FatalError(f"fails on harmless input too: {type(error).__name__}: {error}")
    return pieces


def _halve(start: int, stop: int, run: Callable[[int, int], T]) -> Iterator[Piece[T]]:
    try:
        yield Piece(start, stop, run(start, stop))
    except FatalError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is traced to its row
        if stop - start == 1:
            yield Piece(start, stop, error=error)
            return
        middle = (start + stop) // 2
        yield from _halve(start, middle, run)
        yield from _halve(middle, stop, run)
