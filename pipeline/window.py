"""Window policies: how long a frame may wait for company. Pure: numbers in, seconds out.

Video analytics practice puts the ceiling of a frame's wait at three to five frame intervals; one
interval is what other frameworks wait. So the interval policy takes the ceiling as its limit, and
idle launch (the batcher's business) makes the usual wait far shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.settings import Policy, WindowSettings


class WindowPolicy(Protocol):
    """Decides a frame's longest wait, from its receipt to the closing of its batch."""

    @property
    def min_wait_s(self) -> float:
        """No batch is closed by `idle` before its oldest frame has waited this long."""
        ...

    @property
    def idle_launch(self) -> bool:
        """Whether an idle device may take a batch before its window ends."""
        ...

    def wait_s(self, interval_s: float | None, service_s: float) -> float:
        """Longest wait in seconds.

        Args:
            interval_s: the stream's interval, None while unknown (stills, new streams).
            service_s: predicted seconds from the closing of the batch to its results.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedPolicy:
    """Waits for a full batch, at most `max_wait_s`. The baseline that others are measured by."""

    max_wait_s: float
    min_wait_s: float = 0.0
    idle_launch: bool = False

    def wait_s(self, interval_s: float | None, service_s: float) -> float:  # noqa: ARG002 (the protocol's)
        return self.max_wait_s


@dataclass(frozen=True, slots=True)
class ConstantPolicy:
    """The same window for every frame."""

    constant_s: float
    min_wait_s: float
    idle_launch: bool = True

    def wait_s(self, interval_s: float | None, service_s: float) -> float:  # noqa: ARG002 (the protocol's)
        return self.constant_s


@dataclass(frozen=True, slots=True)
class IntervalPolicy:
    """A few intervals of the frame's own stream, less the service time, within bounds."""

    intervals: float
    min_wait_s: float
    max_wait_s: float
    idle_launch: bool = True

    def wait_s(self, interval_s: float | None, service_s: float) -> float:
        if interval_s is None:
            return self.max_wait_s
        wait = self.intervals * interval_s - service_s
        return min(max(wait, self.min_wait_s), self.max_wait_s)


def make_policy(settings: WindowSettings) -> WindowPolicy:
    """The policy that the settings name (their milliseconds become seconds)."""
    match settings.policy:
        case Policy.FIXED:
            return FixedPolicy(settings.max_wait_ms / 1e3)
        case Policy.WINDOW:
            return ConstantPolicy(
                settings.constant_ms / 1e3, settings.min_wait_ms / 1e3, settings.idle_launch
            )
        case Policy.INTERVAL:
            return IntervalPolicy(
                settings.intervals,
                settings.min_wait_ms / 1e3,
                settings.max_wait_ms / 1e3,
                settings.idle_launch,
            )
