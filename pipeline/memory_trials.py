"""The memory plan of a route's buckets, made by running its model on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.bucket import Bucket
from pipeline.calibrate import Run
from pipeline.exported import Shape
from pipeline.memory import Memory
from pipeline.memory_plan import BucketPlan, BucketSearch, Room, Trial, Try, frame_bytes

MOST_REPEATS = 8
"""Runs of a size for `auto`, the fastest of which counts: the first pays for more than itself."""
STEADY = 2
"""So many runs in a row that are not faster end them before."""
FASTER = 0.01
"""What counts as faster."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A bucket and what the settings say of its batches.

    Attributes:
        bucket: `max_batch` is the batch that is asked for, or the ceiling of `auto`.
        auto: find the largest.
        found: what an earlier start found for `auto`; None if none did.
    """

    bucket: Bucket
    auto: bool
    found: int | None = None


class MemoryPlanner:
    """Plans one device's memory, route by route.

    Args:
        memory: of the device.
        fraction: of what is free now may be taken, above 0 to 1.
        slots: batches on the device at once.
        stopping: once it says yes, sizes that `auto` would look at are left out.
        copies: of a shape's largest batch of frames, that are held beside the slots.
    """

    def __init__(
        self,
        memory: Memory,
        fraction: float,
        slots: int,
        stopping: Callable[[], bool] = lambda: False,
        copies: int = 0,
    ) -> None:
        self._memory = memory
        self._fraction = fraction
        self._slots = slots
        self._stopping = stopping
        self._slot_bytes = 0
        self._copies = copies
        self._beside_bytes = 0

    def plan(
        self, route: str, wishes: Sequence[Wish], run: Run, classes: int
    ) -> Mapping[str, BucketPlan]:
        """Bucket's name → its plan, for a route whose weights are loaded.

        Args:
            run: runs batches on its model; see `Run`.
            classes: that the model tells apart.

        Raises:
            PlanError: a bucket has no room.
        """
        plans: dict[str, BucketPlan] = {}
        same: dict[tuple[int, int, int, bool], BucketPlan] = {}
        for wish in wishes:
            bucket = wish.bucket
            key = (bucket.height, bucket.width, bucket.max_batch, wish.auto)
            if key not in same:
                same[key] = self._bucket(route, wish, run, classes)
            plans[bucket.name] = same[key]
        return plans

    def _bucket(self, route: str, wish: Wish, run: Run, classes: int) -> BucketPlan:
        bucket = wish.bucket
        each = frame_bytes(bucket.height, bucket.width, classes)
        # What earlier buckets left behind (workspaces that libraries keep) is no longer free; their
        # slots' buffers are only planned so far.
        budget = int(self._memory.free_bytes() * self._fraction)
        beside = self._copies * bucket.height * bucket.width * 3
        room = Room(budget, self._slots, each, self._slot_bytes, beside, self._beside_bytes)
        try_ = self._try(bucket, run, auto=wish.auto)
        search = BucketSearch(f"routes.{route}.buckets.{bucket.name}", room, try_)
        if not wish.auto:
            plan = search.asked(bucket.max_batch)
        elif wish.found is not None:
            plan = search.verified(wish.found, bucket.max_batch)
        else:
            plan = search.largest(bucket.max_batch)
        self._slot_bytes = max(self._slot_bytes, plan.max_batch * each)
        self._beside_bytes += plan.max_batch * beside
        return plan

    def _try(self, bucket: Bucket, run: Run, *, auto: bool) -> Try:
        self._memory.release()
        held = self._memory.held_bytes()

        def best_of(shape: Shape) -> float:
            return (
                fastest(lambda: run(shape, shape.max_batch))
                if auto
                else run(shape, shape.max_batch)
            )

        def try_(n: int) -> Trial | None:
            if auto and n > 1 and self._stopping():
                return None
            shape = Shape(bucket.height, bucket.width, n)
            try:
                best, peak = self._memory.peak_of(lambda: best_of(shape))
            except MemoryError:
                self._memory.release()
                return None
            return Trial(best, max(0, peak - held))

        return try_


def fastest(run: Callable[[], float]) -> float:
    """The least of several runs' seconds, at most `MOST_REPEATS`. On a busy machine single runs
    differ by a tenth and more, and a choice must not be by chance; where they do not, three are
    enough."""
    best = run()
    steady = 0
    for _ in range(MOST_REPEATS - 1):
        seconds = run()
        steady = 0 if seconds < best * (1.0 - FASTER) else steady + 1
        best = min(best, seconds)
        if steady == STEADY:
            break
    return best


def planned(buckets: Sequence[Bucket], plans: Mapping[str, BucketPlan]) -> tuple[Bucket, ...]:
    """The buckets with their batches as planned."""
    return tuple(replace(bucket, max_batch=plans[bucket.name].max_batch) for bucket in buckets)
