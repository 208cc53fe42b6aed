"""Records of one stream on their way: how many, and how long acknowledgements take.

Pure: `now_s` is given.
"""

from __future__ import annotations

from itertools import count


class Flight:
    """What the broker has not acknowledged yet."""

    def __init__(self) -> None:
        self._departed: dict[int, float] = {}
        self._numbers = count()
        self._longest_s = 0.0

    def __len__(self) -> int:
        return len(self._departed)

    def depart(self, now_s: float) -> int:
        """A record is handed over; its ticket."""
        ticket = next(self._numbers)
        self._departed[ticket] = now_s
        return ticket

    def land(self, ticket: int, now_s: float) -> None:
        """A record is acknowledged, or given up."""
        self._longest_s = max(self._longest_s, now_s - self._departed.pop(ticket))

    def delay_s(self, now_s: float) -> float:
        """The longest acknowledgement since the last call, or the age of the oldest record that
        still has none, seconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        oldest = next(iter(self._departed.values()), now_s)
        return max(longest_s, now_s - oldest)
