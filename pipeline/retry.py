"""Retries: how long to wait before trying again.

Full jitter: a pause is drawn evenly from zero to a ceiling that doubles with every attempt, up to
a longest one. Of the usual kinds of jitter it spreads the clients best that failed together, for
the least work in total (M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_MOST_DOUBLINGS = 62
"""Beyond it a float's exponent could run over; every ceiling is capped long before."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between attempts.

    Attributes:
        first_s: ceiling of the pause after the first failure, seconds, > 0.
        longest_s: no ceiling is higher, seconds.
        random: numbers of [0, 1), e.g. `random.random`.
    """

    first_s: float
    longest_s: float
    random: Callable[[], float]

    def ceiling_s(self, failures: int) -> float:
        """The longest possible pause after so many failures in a row (≥ 1), seconds."""
        if failures < 1:
            raise ValueError(f"there is no pause after {failures} failures")
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row (≥ 1), seconds."""
        return self.random() * self.ceiling_s(failures)
