"""The surface: latency of (route, bucket, batch size), measured at the start and corrected online.

Two parts make a batch's service time. The model's depends on the shape and the batch size alone,
so calibration measures it before the first frame (`pipeline/calibrate.py`) and finished batches
correct it. What is around the model (decoding and post-processing) depends on the pictures, and is
learned from finished batches only. Without calibration both are learned.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.drift import Drift, DriftWatch
from pipeline.latency import LEAST_S, Line, Table

Key = tuple[str, str]
"""Route, bucket."""


class Surface:
    """Predicts how long a batch takes from its start to its results. Not thread-safe: the engine
    thread owns it.

    Args:
        measured: (route, bucket) → batch size → seconds of the model stage.
    """

    def __init__(self, measured: Mapping[Key, Mapping[int, float]] | None = None) -> None:
        self._tables = {key: Table(seconds) for key, seconds in (measured or {}).items() if seconds}
        self._preferred = {key: table.plateau() for key, table in self._tables.items()}
        self._worthwhile = {key: table.worthwhile() for key, table in self._tables.items()}
        self._watches = {key: DriftWatch() for key in self._tables}
        self._drifts = {key: Drift(*key, ratio=1.0, alarmed=False) for key in self._tables}
        self._lines: dict[Key, Line] = {}
        self._around: dict[Key, Line] = {}

    def observe(
        self,
        route: str,
        bucket: str,
        n: int,
        seconds: float,
        *,
        around_s: float = 0.0,
        model_s: float | None = None,
    ) -> Drift | None:
        """A batch of `n` ≥ 1 frames took `seconds` in the model and `around_s` before and after.

        Args:
            model_s: the same as `seconds`, but as calibration measures it, see `BatchDone`; None
                where it is the same. Predictions go by the clock, drift by this.

        Returns:
            How its (route, bucket) stands, when this batch raised or cleared its alarm.
        """
        key = (route, bucket)
        self._around.setdefault(key, Line()).add(n, around_s)
        table = self._tables.get(key)
        if table is None:
            self._lines.setdefault(key, Line()).add(n, seconds)
            return None
        watch = self._watches[key]
        compared_s = seconds if model_s is None else model_s
        changed = watch.observe(max(compared_s, LEAST_S) / table.measured(n))
        table.correct(n, seconds)
        drift = self._drifts[key] = Drift(*key, ratio=watch.ratio, alarmed=watch.alarmed)
        return drift if changed else None

    def service_s(self, route: str, bucket: str, n: int) -> float:
        """Predicted seconds for a batch of `n` ≥ 1; 0.0 before anything is known."""
        key = (route, bucket)
        around = self._around.get(key)
        around_s = 0.0 if around is None else around.at(n)
        model = self._tables.get(key) or self._lines.get(key)
        return around_s if model is None else model.at(n) + around_s

    def preferred(self, route: str, bucket: str) -> int | None:
        """The batch size whose double is hardly faster per frame; None where nothing was
        measured."""
        return self._preferred.get((route, bucket))

    def worthwhile(self, route: str, bucket: str) -> int | None:
        """The batch size beyond which the model was measured to become slower per frame; None where
        it does not, or nothing was measured."""
        return self._worthwhile.get((route, bucket))

    def drifts(self) -> tuple[Drift, ...]:
        """How every measured (route, bucket) stands."""
        return tuple(self._drifts.values())
