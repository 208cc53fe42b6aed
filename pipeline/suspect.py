"""Suspects: records that were inside a native call when a worker died, and what is held of them.

A crash takes the whole batch with it, and a batch says nothing about which of its frames did it.
So all of them become suspects, and each runs alone the next time. Alone, blame is certain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pipeline.item import Coordinates
from schemas.errors import PoisonError, Reason

CONVICTING_FAULTS = 2
"""The second crash or hang convicts: by then the record was alone."""
CONVICTING_DEATHS = 3
"""A death without a trace (SIGKILL) may be the picture's work, by way of the kernel's memory
killer, or somebody's who had nothing to do with it. It takes one more."""


class Death(StrEnum):
    """How a worker died with a record inside a native call."""

    CRASH = "crash"
    """A signal such as SIGSEGV: the native code broke."""
    HANG = "hang"
    """The call did not return in `device.stage_timeout_ms`."""
    KILLED = "killed"
    """From outside, without a trace."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A record under suspicion.

    Attributes:
        at: its coordinates.
        stage: the stage it was in at the latest death: `decode`, `infer`, `post` or `segment`.
        death: the latest.
        faults: crashes and hangs so far.
        kills: deaths without a trace so far.
        noted_us: when the latest was noted, Unix microseconds.
    """

    at: Coordinates
    stage: str
    death: Death
    faults: int
    kills: int
    noted_us: int

    @property
    def deaths(self) -> int:
        """How often it was inside when a worker died, ≥ 1."""
        return self.faults + self.kills

    def verdict(self) -> PoisonError | None:
        """The dead letter it has earned, or None while it may be tried again, alone."""
        if self.faults < CONVICTING_FAULTS and self.deaths < CONVICTING_DEATHS:
            return None
        if self.death is Death.HANG:
            detail = f"{self.stage} did not return in time, {self.deaths} times, the last one alone"
            return PoisonError(Reason.TIMEOUT, detail, stage=self.stage)
        detail = f"the process died in {self.stage}, {self.deaths} times, the last one alone"
        return PoisonError(Reason.CRASH, detail, stage=self.stage)


def after_death(
    known: Suspect | None, at: Coordinates, stage: str, death: Death, now_us: int
) -> Suspect:
    """What is held of a record (`known`: so far) that was inside when a worker died."""
    before = known or Suspect(at, stage, death, faults=0, kills=0, noted_us=now_us)
    traceless = death is Death.KILLED
    return replace(
        before,
        stage=stage,
        death=death,
        faults=before.faults + (not traceless),
        kills=before.kills + traceless,
        noted_us=now_us,
    )
