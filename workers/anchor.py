"""Monotonic seconds ↔ Unix microseconds, tied together once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pipeline.ports import Clock


@dataclass(frozen=True, slots=True)
class Anchor:
    """One instant read on both clocks. Whatever the wall clock does later, durations and the
    order of instants stay true.

    Attributes:
        monotonic_at: seconds of the process's monotonic clock.
        unix_us: Unix microseconds at the same instant.
    """

    monotonic_at: float
    unix_us: int

    @classmethod
    def now(cls, clock: Clock = time.monotonic) -> Anchor:
        """Read both clocks."""
        return cls(clock(), time.time_ns() // 1000)

    def to_unix_us(self, at: float) -> int:
        """Unix microseconds of a monotonic instant."""
        return self.unix_us + round((at - self.monotonic_at) * 1e6)

    def to_monotonic(self, unix_us: int) -> float:
        """The monotonic instant of a Unix time in microseconds."""
        return self.monotonic_at + (unix_us - self.unix_us) / 1e6


@dataclass(frozen=True, slots=True)
class Time:
    """The worker's clocks."""

    anchor: Anchor
    clock: Clock
