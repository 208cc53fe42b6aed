"""When a worker that died is started again, and when it is given up."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pipeline.retry import Backoff

BACKOFF = Backoff(first_s=0.5, longest_s=30.0, random=random.random)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a supervisor puts up with a worker.

    Attributes:
        backoff: pauses before the next start, by quick deaths in a row.
        quick_s: a worker that dies sooner after its start has died quickly.
        most_quick: so many quick deaths in a row, and the supervisor gives up. A batch with k
            pictures that crash costs k + 1 of them.
    """

    backoff: Backoff = BACKOFF
    quick_s: float = 60.0
    most_quick: int = 10


PATIENCE = Patience()


class Restarts:
    """The deaths of one worker and its successors."""

    def __init__(self, patience: Patience = PATIENCE) -> None:
        self._patience = patience
        self._quick = 0

    @property
    def deaths(self) -> int:
        """Quick deaths in a row, the last one included. One that came after a long life is the
        first of a new row."""
        return self._quick

    def died(self, lived_s: float) -> float | None:
        """The pause before the next start after a life of `lived_s`, both in seconds; None: no
        further start."""
        self._quick = self._quick + 1 if lived_s < self._patience.quick_s else 1
        if self._quick > self._patience.most_quick:
            return None
        return self._patience.backoff.pause_s(self._quick)
