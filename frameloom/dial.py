"""One stream's turning knobs: which frames go, and how good their JPEGs are."""

from __future__ import annotations

from frameloom.adaptive import Adaptive
from frameloom.pace import Thinner
from frameloom.tally import Drop


class Dial:
    """Pure: times are given.

    Args:
        quality: of JPEGs made here, 1..100, unless `adaptive` says otherwise.
        thinner: for live sources with `--fps`.
        adaptive: for `--adaptive`.
    """

    def __init__(
        self, quality: int, thinner: Thinner | None = None, adaptive: Adaptive | None = None
    ) -> None:
        self._quality = quality
        self._thinner = thinner
        self._adaptive = adaptive

    @property
    def best(self) -> bool:
        """Whether pictures are sent as good as they are."""
        return self._adaptive is None or self._adaptive.level == 0

    @property
    def quality(self) -> int:
        """For the next JPEG, 1..100."""
        return self._quality if self._adaptive is None else self._adaptive.quality

    def why_not(self, captured_at_us: int) -> Drop | None:
        """Why the next frame is left out, or None when it is wanted."""
        if self._thinner is not None and not self._thinner.wants(captured_at_us):
            return Drop.FPS
        if self._adaptive is not None and not self._adaptive.wants_next():
            return Drop.ADAPTIVE
        return None

    def observe(self, now_s: float, delay_s: float, dropped: int) -> None:
        """See `Adaptive.observe`."""
        if self._adaptive is not None:
            self._adaptive.observe(now_s, delay_s, dropped)
