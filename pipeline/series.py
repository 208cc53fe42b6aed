"""The values behind the metrics, kept so that counting one frame costs next to nothing.

The library's own counters and histograms take one to three microseconds per call, most of it for
things that are not used here, and a frame is counted a dozen times. These take a tenth. At a scrape
the library is handed whole families.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]
"""Values of a series' labels, in the metric's order."""


class Numbers:
    """Counters or gauges of one name: a number for each set of label values. Any thread may use
    them.

    Args:
        labels: names of the labels. Without any the one series is there from the start.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._count = len(labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}
        self._read: Callable[[], float] | None = None
        self._lock = threading.Lock()

    def add(self, labels: Labels, amount: float) -> None:
        """Raises ValueError where the number of labels is not the metric's."""
        with self._lock:
            if labels in self._values:
                self._values[labels] += amount
                return
            check(labels, self._count)
            self._values[labels] = amount

    def set(self, labels: Labels, value: float) -> None:
        """Raises ValueError where the number of labels is not the metric's."""
        check(labels, self._count)
        with self._lock:
            self._values[labels] = value

    def follow(self, read: Callable[[], float]) -> None:
        """The one series of a name without labels is what `read` says whenever it is asked for, on
        any thread."""
        check((), self._count)
        self._read = read

    def forget(self, labels: Labels) -> None:
        """No series of these labels from now on."""
        with self._lock:
            self._values.pop(labels, None)

    def all(self) -> list[tuple[Labels, float]]:
        """A copy."""
        if self._read is not None:
            return [((), float(self._read()))]
        with self._lock:
            return list(self._values.items())


class Distributions:
    """Histograms of one name. Any thread may use them.

    Args:
        labels: names of the labels.
        bounds: of the buckets, rising; one without an upper end comes after them.
    """

    def __init__(self, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._count = len(labels)
        self._bounds = tuple(bounds)
        self._names = [*map(floatToGoString, bounds), "+Inf"]
        self._values: dict[Labels, list[float]] = {}
        self._lock = threading.Lock()

    def observe(self, labels: Labels, *values: float) -> None:
        """Raises ValueError where the number of labels is not the metric's."""
        bounds = self._bounds
        with self._lock:
            found = self._values.get(labels)
            if found is None:
                check(labels, self._count)
                # A count per bucket, and the sum at the end.
                found = self._values[labels] = [0.0] * (len(bounds) + 2)
            for value in values:
                found[bisect_left(bounds, value)] += 1.0
                found[-1] += value

    def all(self) -> list[tuple[Labels, list[tuple[str, float]], float]]:
        """Labels, upper bounds with the number of values up to them, and the sum of all."""
        with self._lock:
            copies = [(labels, list(found)) for labels, found in self._values.items()]
        series: list[tuple[Labels, list[tuple[str, float]], float]] = []
        for labels, found in copies:
            buckets: list[tuple[str, float]] = []
            total = 0.0
            for name, count in zip(self._names, found, strict=False):
                total += count
                buckets.append((name, total))
            series.append((labels, buckets, found[-1]))
        return series


def check(labels: Labels, count: int) -> None:
    """Raises ValueError where there are not so many."""
    if len(labels) != count:
        raise ValueError(f"{count} labels are declared, not {len(labels)}: {labels}")
