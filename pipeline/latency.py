"""Latency by batch size: a table that was measured, or a line that is learned. Pure.

A `Table` is what calibration measured, piecewise linear and never falling, and each finished batch
moves it a little. A `Line` (a fixed cost per batch and a cost per frame) serves where nothing was
measured: least squares with exponential forgetting.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

FORGETTING = 0.97
"""Weight that a line's observation keeps at each later one: about 33 batches of memory."""
SHARED, LOCAL = 0.1, 0.1
"""How far one batch moves a table: all its sizes (a device that slows down does so for all), and
the sizes next to the batch's own."""
MOST_STEP = math.log(2)
"""A batch that took longer than twice its prediction (a stall) counts as twice."""
LEAST_S = 1e-9
FALL = 0.1
"""How far below the best speed a batch may be: fewer, larger ones spare work around the model, and
on a busy machine large ones are measured too slow by some hundredths."""
PLATEAU_GAIN = 0.05
"""Twice the batch has to bring more than this, or it is not worth its latency."""


class Line:
    """Least squares with forgetting. Empty at first."""

    __slots__ = ("_mean_n", "_mean_s", "_slope", "_weight", "_xt", "_xx", "_y", "_yt")

    def __init__(self) -> None:
        self._weight = self._xt = self._xx = self._y = self._yt = 0.0
        self._mean_n = self._mean_s = 0.0
        self._slope: float | None = None

    def add(self, n: int, seconds: float) -> None:
        """A batch of `n` ≥ 1 took so long."""
        keep = FORGETTING
        weight = self._weight = self._weight * keep + 1.0
        self._xt = self._xt * keep + n
        self._xx = self._xx * keep + n * n
        self._y = self._y * keep + seconds
        self._yt = self._yt * keep + seconds * n
        mean_n, mean_s = self._xt / weight, self._y / weight
        variance = self._xx / weight - mean_n * mean_n
        self._mean_n, self._mean_s, self._slope = mean_n, mean_s, None
        if variance > 1e-6 * mean_n * mean_n:
            slope = (self._yt / weight - mean_n * mean_s) / variance
            self._slope = min(max(slope, 0.0), mean_s / mean_n)

    def at(self, n: int) -> float:
        """Predicted seconds; 0.0 while it is empty."""
        if self._slope is not None:
            return self._mean_s + self._slope * (n - self._mean_n)
        # One batch size seen so far: smaller ones may cost as much, larger ones in proportion.
        return self._mean_s * max(1.0, n / self._mean_n) if self._mean_n else 0.0


class Table:
    """Measured seconds by batch size, moved by what is seen later.

    Args:
        seconds: batch size ≥ 1 → seconds > 0; at least one. Where a larger batch was measured
            faster than a smaller one, the smaller one could have been padded: it gets its time.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        if not seconds or min(seconds) < 1 or not all(0 < s < math.inf for s in seconds.values()):
            raise ValueError(f"no latencies by batch size: {dict(seconds)}")
        self.sizes = tuple(sorted(seconds))
        self._measured = [seconds[n] for n in self.sizes]
        _lower_to_later(self._measured)
        self._now = list(self._measured)

    def at(self, n: int) -> float:
        """Predicted seconds of a batch of `n` ≥ 1. Never falls as `n` grows; beyond the largest
        measured size in proportion."""
        return self._between(self._now, n)

    def measured(self, n: int) -> float:
        """The same, by the measurement alone."""
        return self._between(self._measured, n)

    def correct(self, n: int, seconds: float) -> None:
        """A batch of `n` ≥ 1 took so long."""
        off = math.log(max(seconds, LEAST_S) / self.at(n))
        off = min(max(off, -MOST_STEP), MOST_STEP)
        near = dict(self._weights(n))
        for index in range(len(self._now)):
            self._now[index] *= math.exp(off * (SHARED + LOCAL * near.get(index, 0.0)))
        if off > 0:
            for index in range(1, len(self._now)):
                self._now[index] = max(self._now[index], self._now[index - 1])
        else:
            _lower_to_later(self._now)

    def plateau(self) -> int | None:
        """The smallest measured or interpolated size whose double brings less than `PLATEAU_GAIN`
        more pictures per second, by the measurement; None if none was seen to."""
        for n in range(self.sizes[0], self.sizes[-1] // 2 + 1):
            if gain(self.measured(n), n, self.measured(2 * n), 2 * n) < PLATEAU_GAIN:
                return n
        return None

    def worthwhile(self) -> int | None:
        """The largest size, up to the largest measured, that does as many pictures per second as
        the best one, less `FALL`; None where that is the largest measured: nothing was seen to fall
        then. On a CPU large batches leave the caches, and each picture takes longer."""
        # Between measured sizes pictures per second only rise or only fall.
        best = max(n / self.measured(n) for n in self.sizes)
        sizes = range(self.sizes[-1], self.sizes[0] - 1, -1)
        found = next(n for n in sizes if n / self.measured(n) >= (1.0 - FALL) * best)
        return None if found == self.sizes[-1] else found

    def _between(self, seconds: list[float], n: int) -> float:
        if n > self.sizes[-1]:
            return seconds[-1] * n / self.sizes[-1]
        return sum(seconds[index] * weight for index, weight in self._weights(n))

    def _weights(self, n: int) -> list[tuple[int, float]]:
        """The measured sizes next to `n`, as indices, and how near each is; 1 in all."""
        right = min(bisect_left(self.sizes, n), len(self.sizes) - 1)
        if n <= self.sizes[0] or n >= self.sizes[right]:
            return [(right, 1.0)]
        low, high = self.sizes[right - 1], self.sizes[right]
        share = (n - low) / (high - low)
        return [(right - 1, 1.0 - share), (right, share)]


def gain(seconds: float, n: int, more_seconds: float, more: int) -> float:
    """How much more work per second batches of `more` do than batches of `n`: 0.05 is 5 %."""
    return (more / more_seconds) / (n / seconds) - 1.0


def _lower_to_later(seconds: list[float]) -> None:
    for index in range(len(seconds) - 2, -1, -1):
        seconds[index] = min(seconds[index], seconds[index + 1])
