"""Caps: how many frames a batch may have on a device that ran out of memory.

The memory plan (`pipeline/memory_plan.py`) sets a bucket's largest batch by what was free at the
start; what others take later is met here, and the cap never rises above the plan.

Down at once, to what went through; up again slowly, because every probe that fails costs its batch
a second run. A probe has to be earned: some batches that used the cap in full, and a wait, which
doubles whenever memory runs out again before a probe has proved itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.bucket import Bucket

FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 1_800.0
PROOFS = 3
"""Batches that have to fill the cap before it is raised, and before a raise has proved itself."""


@dataclass(slots=True)
class Cap:
    """The cap of one (route, bucket), from the first time that memory ran out.

    Attributes:
        most: the bucket's largest batch, as planned; the cap never exceeds it.
        limit: the cap, 1 to `most`.
        changed_at: when it was set, monotonic seconds.
        wait_s: least time from then until the next probe.
        proofs: batches that filled it since.
        proven: the cap before the probe that is on; None while none is.
    """

    most: int
    limit: int
    changed_at: float
    wait_s: float = FIRST_WAIT_S
    proofs: int = 0
    proven: int | None = None

    def exhausted(self, size: int, fits: int, now: float) -> None:
        """Memory ran out for a batch of `size`, and `fits` < `size` (or 1) went through."""
        if size > self.limit:
            # It was started before the cap: it says nothing of batches within it, unless less than
            # they went through.
            self.limit = min(self.limit, fits)
        elif self.proven is None:
            self.limit = max(1, min(fits, self.limit - 1))
        else:
            # Back to what was enough for long, and not to half of the probe.
            self.limit = self.proven
            self.wait_s = min(LONGEST_WAIT_S, 2 * self.wait_s)
        self.changed_at, self.proofs, self.proven = now, 0, None

    def ran(self, size: int, now: float) -> None:
        """A batch of `size` went through at once."""
        if size < self.limit:
            return
        self.proofs += 1
        if self.proofs < PROOFS:
            return
        if self.proven is not None:
            self.wait_s, self.proven = FIRST_WAIT_S, None
        if self.limit < self.most and now >= self.changed_at + self.wait_s:
            self.proven = self.limit
            self.limit = min(self.most, self.limit + max(1, self.limit // 2))
            self.changed_at, self.proofs = now, 0


class Caps:
    """The caps of one device. Without a shortage it holds none. Owned by the engine thread."""

    def __init__(self) -> None:
        self._caps: dict[tuple[str, str], Cap] = {}

    def observe(
        self, route: str, bucket: Bucket, size: int, fits: int | None, now: float
    ) -> int | None:
        """Take in a finished batch of `size`; `fits` as in `BatchDone`.

        Returns:
            The new cap of its (route, bucket), or None where it is as before.
        """
        key = (route, bucket.name)
        cap = self._caps.get(key)
        if cap is None:
            if fits is None:
                return None
            cap = self._caps[key] = Cap(bucket.max_batch, bucket.max_batch, now)
        before = cap.limit
        if fits is None:
            cap.ran(size, now)
        else:
            cap.exhausted(size, fits, now)
        return cap.limit if cap.limit != before else None
