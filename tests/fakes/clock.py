"""A clock that moves only when a test moves it."""

from __future__ import annotations


class VirtualClock:
    """Monotonic seconds under the test's control. Call it to read it."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance_to(self, instant: float) -> None:
        if instant < self.now:
            raise ValueError(f"the clock is at {self.now}, cannot go back to {instant}")
        self.now = instant

    def advance(self, seconds: float) -> None:
        self.advance_to(self.now + seconds)
