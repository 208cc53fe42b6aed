"""JPEG quality that follows what the broker takes: lower first, then fewer frames, and back.

Pure: `now_s` is given. The signal is how long acknowledgements take, which rises with every cause
of slowness (network, disk, a broker that is catching up) before anything else is to be seen.

Down is quick: one step per period in which acknowledgements were late or frames were dropped.
Up is slow: one step after a calm time in which they were quick, with a gap between the two
thresholds (hysteresis). A step up that the broker does not bear is taken back, and the next try
waits twice as long, up to a limit, so that a link of constant width settles instead of swinging.
"""

from __future__ import annotations

from dataclasses import dataclass

_QUALITY_STEP = 10
_KEEP_ONE_IN = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class AdaptiveLimits:
    """When to step.

    Attributes:
        best: quality to start with and to come back to, 1..100.
        worst: never lower than this; then frames are left out.
        late_s: an acknowledgement that takes longer is a sign of a slow broker.
        quick_s: all of a calm time's must be quicker than this; below `late_s`.
        period_s: between two steps down, at least.
        calm_s: before the first try upwards.
        longest_calm_s: before any.
    """

    best: int = 90
    worst: int = 30
    late_s: float = 0.75
    quick_s: float = 0.25
    period_s: float = 1.0
    calm_s: float = 5.0
    longest_calm_s: float = 60.0


class Adaptive:
    """One stream's quality. Level 0 is the best; the last levels leave frames out."""

    def __init__(self, limits: AdaptiveLimits, *, may_skip: bool) -> None:
        self._limits = limits
        worst = min(limits.worst, limits.best)
        self._qualities = [*range(limits.best, worst, -_QUALITY_STEP), worst]
        self._keep = _KEEP_ONE_IN if may_skip else ()
        self._level = 0
        self._calm_s = limits.calm_s
        self._calm_since: float | None = None
        self._stepped_down_at = float("-inf")
        self._climbed_at: float | None = None
        self._seen = 0

    @property
    def level(self) -> int:
        """0 for the best quality and every frame."""
        return self._level

    @property
    def quality(self) -> int:
        """For the next JPEG, 1..100."""
        return self._qualities[min(self._level, len(self._qualities) - 1)]

    @property
    def keep_one_in(self) -> int:
        """1 for every frame, else one in so many."""
        beyond = self._level - len(self._qualities)
        return 1 if beyond < 0 else self._keep[beyond]

    def wants_next(self) -> bool:
        """Whether the next frame is to be sent. Call once per frame."""
        self._seen += 1
        return self._seen % self.keep_one_in == 0

    def observe(self, now_s: float, delay_s: float, dropped: int) -> None:
        """What has been seen since the last call.

        Args:
            now_s: a monotonic clock.
            delay_s: the longest acknowledgement since then, or the age of the oldest record that
                still has none, whichever is longer.
            dropped: frames thrown away since then because the buffer was full.
        """
        if dropped or delay_s > self._limits.late_s:
            self._calm_since = None
            if now_s - self._stepped_down_at >= self._limits.period_s:
                self._step_down(now_s)
        elif delay_s > self._limits.quick_s:
            self._calm_since = None
        else:
            self._step_up(now_s)

    def _step_down(self, now_s: float) -> None:
        if self._climbed_at is not None and now_s - self._climbed_at <= self._calm_s:
            self._calm_s = min(2 * self._calm_s, self._limits.longest_calm_s)
        self._climbed_at = None
        self._stepped_down_at = now_s
        self._level = min(self._level + 1, len(self._qualities) + len(self._keep) - 1)

    def _step_up(self, now_s: float) -> None:
        if self._calm_since is None:
            self._calm_since = now_s
        if self._level and now_s - self._calm_since >= self._calm_s:
            if self._climbed_at is not None:
                # The last step up was borne for a whole calm time: the link is what it was.
                self._calm_s = max(self._calm_s / 2, self._limits.calm_s)
            self._level -= 1
            self._climbed_at = now_s
            self._calm_since = now_s
