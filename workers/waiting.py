"""When a worker says that it waits for partitions."""

from __future__ import annotations

FIRST_S = 30.0
LONGEST_S = 3600.0


class Waiting:
    """Counts how long there have been no partitions. It is said after `FIRST_S`, and again each
    time that this has doubled, at least every `LONGEST_S`: a worker in reserve may wait for days.

    Args:
        now: counted from then on; monotonic seconds, as everywhere here.
    """

    def __init__(self, now: float) -> None:
        self._begin(now)

    def look(self, now: float, *, assigned: bool) -> float | None:
        """How many seconds it has waited when it is time to say so, else None. `assigned`: whether
        it has partitions now."""
        if assigned:
            self._begin(now)
            return None
        waited_s = now - self._since_at
        if waited_s < self._due_s:
            return None
        self._due_s = waited_s + min(waited_s, LONGEST_S)
        return waited_s

    def _begin(self, now: float) -> None:
        self._since_at, self._due_s = now, FIRST_S
