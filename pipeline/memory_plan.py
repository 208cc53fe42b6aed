"""The memory plan: how large a batch of a bucket may be on a device. Pure: numbers, and a `try`.

A bucket takes buffers (in every slot, for its largest batch; buckets share them, so the largest
counts) and a workspace while the model runs. Buffers are computed. The workspace is measured on
small batches, extended to larger ones, and, where the plan chooses, verified by running. Nothing is
run that the figures so far say does not fit: a host short of memory kills instead of refusing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pipeline.latency import PLATEAU_GAIN, gain
from schemas.errors import ConfigError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Trial:
    """A batch that ran.

    Attributes:
        seconds: what it took, > 0.
        peak_bytes: the most memory that was held while it ran, beyond what was held before the
            bucket's first batch, ≥ 0.
    """

    seconds: float
    peak_bytes: int


Try = Callable[[int], Trial | None]
"""Runs a batch of so many frames; None where memory ran out."""


class PlanError(ConfigError):
    """What the settings ask for has no room. Names what to lower."""


class LimitedBy(StrEnum):
    """Why a bucket's batches are not larger."""

    ASKED = "asked"
    """The setting says so."""
    MEMORY = "memory"
    """More do not fit."""
    PLATEAU = "plateau"
    """Twice as many bring less than 5 % more pictures per second."""
    CEILING = "ceiling"
    """The most that `auto` looks for, or that the model's file takes."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a bucket may take.

    Attributes:
        budget_bytes: buffers and workspace of this bucket, with buffers that others need already.
        slots: batches on the device at once.
        frame_bytes: of one frame in one slot.
        slot_bytes: what earlier buckets need in one slot.
        beside_frame_bytes: of one frame, once per shape and in no slot: a graph's input, what a
            decoder gave last.
        beside_bytes: what earlier buckets need so.
    """

    budget_bytes: int
    slots: int
    frame_bytes: int
    slot_bytes: int = 0
    beside_frame_bytes: int = 0
    beside_bytes: int = 0

    def buffers(self, n: int) -> int:
        """Bytes of all slots for batches of `n`, and of what stands beside them."""
        beside = self.beside_bytes + n * self.beside_frame_bytes
        return self.slots * max(self.slot_bytes, n * self.frame_bytes) + beside


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """What a bucket may do.

    Attributes:
        max_batch: frames in its largest batch.
        limited_by: why not more.
        buffers_bytes: of all slots, and of what stands beside them.
        workspace_bytes: while the model runs: measured, or extended from smaller batches.
    """

    max_batch: int
    limited_by: LimitedBy
    buffers_bytes: int
    workspace_bytes: int


class BucketSearch:
    """One bucket's plan in the making.

    Args:
        where: the bucket, as messages name it, e.g. `routes.default.buckets.480p`.
        room: what it may take.
        try_: runs batches.
    """

    def __init__(self, where: str, room: Room, try_: Try) -> None:
        self._where = where
        self._room = room
        self._try = try_
        self._trials: dict[int, Trial] = {}

    def asked(self, n: int) -> BucketPlan:
        """The plan for a batch that the settings name; runs batches of one and two.

        Raises:
            PlanError: it has no room.
        """
        for size in (1, 2):
            if size <= n and not self._fits(size):
                raise self._refusal(size)
        if self._needs(n) > self._room.budget_bytes:
            raise self._refusal(n)
        return self._plan(n, LimitedBy.ASKED)

    def largest(self, ceiling: int) -> BucketPlan:
        """The largest batch up to `ceiling` ≥ 1 that has room, but no larger than the plateau.

        Raises:
            PlanError: not even one frame has room.
        """
        if not self._fits(1):
            raise self._refusal(1)
        n, flat = 1, None
        while n < ceiling:
            more = min(2 * n, ceiling)
            if not self._fits(more):
                if flat is not None:
                    return self._plan(flat, LimitedBy.PLATEAU)
                return self._plan(self._between(n, more), LimitedBy.MEMORY)
            # One measurement too slow looks like a plateau, so the next size is looked at, too.
            if not self._worth(flat or n, more):
                if flat is not None:
                    return self._plan(flat, LimitedBy.PLATEAU)
                flat = n
            else:
                flat = None
            n = more
        if flat is not None:
            return self._plan(flat, LimitedBy.PLATEAU)
        return self._plan(n, LimitedBy.CEILING)

    def verified(self, n: int, ceiling: int) -> BucketPlan:
        """The plan for a size that `largest` found at an earlier start: one run says whether it
        still fits, and the search begins anew where it does not.

        Raises:
            PlanError: not even one frame has room.
        """
        if self._fits(1) and n <= ceiling and self._fits(n):
            limited_by = LimitedBy.CEILING if n == ceiling else LimitedBy.PLATEAU
            return self._plan(n, limited_by)
        return self.largest(ceiling)

    def _worth(self, n: int, more: int) -> bool:
        """Whether batches of `more` bring `PLATEAU_GAIN` for each doubling of `n`."""
        got = gain(self._trials[n].seconds, n, self._trials[more].seconds, more)
        return got >= PLATEAU_GAIN * math.log2(more / n)

    def _between(self, fits: int, not_fits: int) -> int:
        while not_fits - fits > 1:
            middle = (fits + not_fits) // 2
            if self._fits(middle):
                fits = middle
            else:
                not_fits = middle
        return fits

    def _fits(self, n: int) -> bool:
        """Whether a batch of `n` has room: by the figures so far, then by running it."""
        if self._trials and self._needs(n) > self._room.budget_bytes:
            return False
        trial = self._try(n)
        if trial is None:
            return False
        self._trials[n] = trial
        return self._needs(n) <= self._room.budget_bytes

    def _needs(self, n: int) -> int:
        return self._room.buffers(n) + self._workspace(n)

    def _workspace(self, n: int) -> int:
        """Measured; or extended from the largest smaller batch by the cost of a further frame, at
        least what a frame takes as numbers."""
        known = max((size for size in self._trials if size <= n), default=0)
        if not known:
            return 0
        peak = self._trials[known].peak_bytes
        if known == n:
            return peak
        first = min(self._trials)
        each = peak
        if known > first:
            each = (peak - self._trials[first].peak_bytes) // (known - first)
        return peak + (n - known) * max(each, 4 * self._room.frame_bytes)

    def _plan(self, n: int, limited_by: LimitedBy) -> BucketPlan:
        return BucketPlan(n, limited_by, self._room.buffers(n), self._workspace(n))

    def _refusal(self, n: int) -> PlanError:
        room = self._room
        lower = "max_batch (or set it to auto), " if n > 1 else "its height and width, "
        return PlanError(
            f"{self._where}: no memory for batches of {n}: the buffers of {room.slots} slots take "
            f"{room.buffers(n) // MIB} MiB and the model {self._workspace(n) // MIB} MiB beside "
            f"its weights; there are {room.budget_bytes // MIB} MiB (device.memory_fraction of "
            f"what is free). Lower {lower}device.slots or the number of routes, or take a smaller "
            "model"
        )


def frame_bytes(height: int, width: int, classes: int) -> int:
    """What one frame takes in a slot: its pixels, uint8 RGB, and its predictions, float32 (4 +
    classes) for each anchor of YOLOv8's three scales, 8, 16 and 32 pixels apart."""
    anchors = sum((height // step) * (width // step) for step in (8, 16, 32))
    return height * width * 3 + anchors * (4 + classes) * 4
