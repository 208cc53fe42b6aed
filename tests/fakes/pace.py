"""How fast a worker's model is, told from outside while it runs.

So a worker that is to be caught at its work is not done with it by then, however long whoever wants
to catch it is kept from running.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.01


@dataclass(frozen=True)
class Pace:
    """How fast a model is. Lies in a file.

    Attributes:
        batch_ms: how much longer a batch takes than it does by itself.
        gate: once a process has inferred so many frames, its next batch waits in the model until
            there may be more.
    """

    batch_ms: float = 0.0
    gate: float = math.inf

    @classmethod
    def read(cls, file: Path) -> Pace:
        """What `write` wrote."""
        batch_ms, gate = map(float, file.read_text().split())
        return cls(batch_ms, gate)

    def write(self, file: Path) -> None:
        """Replaced at once: a worker may be reading it."""
        new = file.with_suffix(".new")
        new.write_text(f"{self.batch_ms} {self.gate}")
        new.replace(file)


class Paced:
    """Keeps one model at the pace that the file says. On the model's thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._frames = 0

    def wait(self, frames: int) -> None:
        """Before a batch of so many frames: at the gate, and as long as a batch takes."""
        while self._frames >= Pace.read(self._file).gate:
            time.sleep(LOOK_S)
        self._frames += frames
        time.sleep(Pace.read(self._file).batch_ms / 1e3)
