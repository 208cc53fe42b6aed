"""Drift: batches that take other times than were measured at the start. Pure.

The alarm has hysteresis: it is raised by a lasting factor of two, and cleared by one of one and a
half, so that a ratio near the bound does not make a log of alarms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 0.95
"""Weight that a batch keeps at each later one: about 20 batches."""
LEAST_BATCHES = 20
"""Before that no alarm is raised."""
RAISED, CLEARED = math.log(2.0), math.log(1.5)


@dataclass(frozen=True, slots=True)
class Drift:
    """How one (route, bucket) stands.

    Attributes:
        ratio: observed over measured time of the model stage, smoothed; 1.0 is as measured.
        alarmed: it was off by more than a factor of two and has not come back to one and a half.
    """

    route: str
    bucket: str
    ratio: float
    alarmed: bool


class DriftWatch:
    """The smoothed ratio of one (route, bucket), and its alarm."""

    __slots__ = ("_batches", "_mean", "alarmed")

    def __init__(self) -> None:
        self._mean = 0.0
        self._batches = 0
        self.alarmed = False

    @property
    def ratio(self) -> float:
        return math.exp(self._mean)

    def observe(self, ratio: float) -> bool:
        """A batch took `ratio` > 0 times what was measured. True when the alarm changed."""
        self._batches += 1
        # The mean of all at first, then the latest count most.
        weight = max(1.0 / self._batches, 1.0 - MEMORY)
        self._mean += weight * (math.log(ratio) - self._mean)
        off = abs(self._mean)
        before = self.alarmed
        if before:
            self.alarmed = off > CLEARED
        else:
            self.alarmed = off >= RAISED and self._batches >= LEAST_BATCHES
        return self.alarmed != before
