"""Bisection: find the one item that makes a batch fail, and let the others succeed.

Memory that runs out is nobody's fault. The batch is halved for it too, because half of it may fit,
but a single row that still does not fit is only tried again, after a pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from schemas.errors import FatalError, TransientError

T = TypeVar("T")

TRIES = 4
"""How often a single row is run while it fails with a TransientError."""


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """Rows [start, stop) of a batch: their joint value, or (a single row) the error it raised.

    Attributes:
        attempts: how often these rows were run because of a TransientError, and the last time.
    """

    start: int
    stop: int
    value: T | None = None
    error: Exception | None = None
    attempts: int = 1


def isolate(
    n: int,
    run: Callable[[int, int], T],
    healthy: Callable[[], bool],
    pause: Callable[[int], None] = lambda _: None,
) -> list[Piece[T]]:
    """Run rows [0, n) as one piece; where that raises, halve until the culprits stand alone.

    Args:
        n: rows, ≥ 1.
        run: computes rows [start, stop); any `Exception` counts as a failure of those rows.
        healthy: asked once when a culprit was found: does `run`'s machinery still work on
            harmless input? If not, the rows are innocent.
        pause: called with the number of failures before a single row is run again.

    Returns:
        Pieces that cover [0, n) in order. One whose error is a TransientError was tried `TRIES`
        times alone.

    Raises:
        FatalError: the machinery is broken, not the rows. Also raised through from `run`.
    """
    pieces = list(_halve(0, n, run, pause, 1))
    culprits = [piece for piece in pieces if piece.error is not None]
    if culprits and not healthy():
        error = culprits[0].error
        raise FatalError(f"fails on harmless input too: {type(error).__name__}: {error}")
    return pieces


def most_that_fit(pieces: list[Piece[T]]) -> int | None:
    """The most rows that went through at once, where memory ran out on more (at least 1); None
    where it did not run out."""
    if all(piece.attempts == 1 for piece in pieces):
        return None
    fitting = (p.stop - p.start for p in pieces if p.attempts > 1 and p.error is None)
    return max(fitting, default=1)


def _halve(
    start: int, stop: int, run: Callable[[int, int], T], pause: Callable[[int], None], attempts: int
) -> Iterator[Piece[T]]:
    if stop - start == 1:
        yield _alone(start, run, pause, attempts)
        return
    try:
        yield Piece(start, stop, run(start, stop), attempts=attempts)
    except FatalError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is traced to its row
        attempts += isinstance(error, TransientError)
    else:
        return
    middle = (start + stop) // 2
    yield from _halve(start, middle, run, pause, attempts)
    yield from _halve(middle, stop, run, pause, attempts)


def _alone(
    row: int, run: Callable[[int, int], T], pause: Callable[[int], None], attempts: int
) -> Piece[T]:
    for failures in range(1, TRIES + 1):
        try:
            return Piece(row, row + 1, run(row, row + 1), attempts=attempts)
        except FatalError:
            raise
        except TransientError as error:
            if failures == TRIES:
                return Piece(row, row + 1, error=error, attempts=attempts)
            attempts += 1
            pause(failures)
        except Exception as error:  # noqa: BLE001 - it is this row's
            return Piece(row, row + 1, error=error, attempts=attempts)
    raise AssertionError("unreachable: the last try returns")
