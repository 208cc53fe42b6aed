"""The surface: measured latency of (route, bucket, batch size), learned from finished batches.

Latency is close to a line in the batch size (a fixed cost per batch and a cost per frame), so each
(route, bucket) keeps a least-squares line with exponential forgetting. It follows drift (a device
that slows down, a model that warms up) without a table to maintain.
"""

from __future__ import annotations

FORGETTING = 0.97
"""Weight that an observation keeps at each later one: about 33 batches of memory."""


class _Line:
    __slots__ = ("weight", "xt", "xx", "y", "yt")

    def __init__(self) -> None:
        self.weight = self.xt = self.xx = self.y = self.yt = 0.0

    def add(self, n: int, seconds: float) -> None:
        keep = FORGETTING
        self.weight = self.weight * keep + 1.0
        self.xt = self.xt * keep + n
        self.xx = self.xx * keep + n * n
        self.y = self.y * keep + seconds
        self.yt = self.yt * keep + seconds * n

    def at(self, n: int) -> float:
        mean_n, mean_s = self.xt / self.weight, self.y / self.weight
        variance = self.xx / self.weight - mean_n * mean_n
        if variance > 1e-6 * mean_n * mean_n:
            slope = (self.yt / self.weight - mean_n * mean_s) / variance
            slope = min(max(slope, 0.0), mean_s / mean_n)
            return mean_s + slope * (n - mean_n)
        # One batch size seen so far: smaller ones may cost as much, larger ones in proportion.
        return mean_s * max(1.0, n / mean_n)


class Surface:
    """Predicts how long a batch takes from its start to its results. Not thread-safe: the engine
    thread owns it."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _Line] = {}

    def observe(self, route: str, bucket: str, n: int, seconds: float) -> None:
        """A batch of `n` ≥ 1 frames took `seconds` of stage time (decode + infer + post)."""
        line = self._lines.get((route, bucket))
        if line is None:
            line = self._lines[route, bucket] = _Line()
        line.add(n, seconds)

    def service_s(self, route: str, bucket: str, n: int) -> float:
        """Predicted seconds for a batch of `n` ≥ 1; 0.0 before the first observation."""
        line = self._lines.get((route, bucket))
        return 0.0 if line is None else line.at(n)
