"""A device with scripted stage times on a virtual clock, and what drives an engine on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.engine import EngineLoop
from pipeline.item import Batch, Item, Outcome, StageTimes
from pipeline.ports import BatchDone
from schemas.errors import FatalError
from tests.fakes.clock import VirtualClock

StageCost = Callable[[int], float]
"""Seconds that a stage takes for a batch of n."""


@dataclass(frozen=True)
class _Run:
    batch: Batch
    started_at: float
    inferred_at: float
    finished_at: float
    times: StageTimes


class FakeDevice:
    """Implements the `Device` port. Each stage does one batch at a time, in order; a slot is held
    from `start` to the end of the model stage, as in the real device."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        decode_s: StageCost = lambda n: 0.0,
        infer_s: StageCost = lambda n: 0.0,
        post_s: StageCost = lambda n: 0.0,
        slots: int = 2,
    ) -> None:
        self.started: list[Batch] = []
        self.failure: FatalError | None = None
        self.closed = False
        self.room: int | None = None
        """The most rows for which there is memory; None for all."""
        self._clock = clock
        self._costs = (decode_s, infer_s, post_s)
        self._slots = slots
        self._stage_free_at = [0.0, 0.0, 0.0]
        self._runs: list[_Run] = []
        self._notify: Callable[[], None] = lambda: None

    @property
    def free_slots(self) -> int:
        return self._slots - sum(run.inferred_at > self._clock() for run in self._runs)

    @property
    def compute_idle(self) -> bool:
        return self.free_slots == self._slots

    def listen(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def start(self, batch: Batch) -> None:
        if not self.free_slots:
            raise RuntimeError("no free slot")
        self.started.append(batch)
        now = self._clock()
        ends: list[float] = []
        ready_at = now
        for stage, cost in enumerate(self._costs):
            ready_at = max(ready_at, self._stage_free_at[stage]) + cost(len(batch.items))
            self._stage_free_at[stage] = ready_at
            ends.append(ready_at)
        n = len(batch.items)
        times = StageTimes(now, ends[2], *(cost(n) for cost in self._costs))
        self._runs.append(_Run(batch, now, ends[1], ends[2], times))

    def collect(self) -> list[BatchDone]:
        done = [run for run in self._runs if run.finished_at <= self._clock()]
        self._runs = [run for run in self._runs if run.finished_at > self._clock()]
        return [
            BatchDone(
                run.batch,
                tuple(
                    Outcome(item, batch=run.batch, index=i, times=run.times)
                    for i, item in enumerate(run.batch.items)
                ),
                run.times,
                self._fits(len(run.batch.items)),
            )
            for run in done
        ]

    def _fits(self, size: int) -> int | None:
        if self.room is None or size <= self.room:
            return None
        return self.room

    def close(self) -> None:
        self.closed = True

    def join(self, timeout_s: float) -> bool:
        return self.closed

    def fail(self, error: FatalError) -> None:
        self.failure = error
        self._notify()

    def announce(self) -> None:
        """Tell the listener what the passing of (virtual) time brought."""
        self._notify()

    def next_event(self) -> float:
        """When a slot is freed or a batch finishes next; infinity when nothing runs."""
        now = self._clock()
        instants = [t for run in self._runs for t in (run.inferred_at, run.finished_at)]
        return min((t for t in instants if t > now), default=math.inf)


def drive(
    loop: EngineLoop,
    device: FakeDevice,
    clock: VirtualClock,
    arrivals: Sequence[tuple[float, Item]],
    *,
    after_turn: Callable[[float], None] = lambda due_at: None,
    until: float = math.inf,
) -> None:
    """Feed `arrivals` (instant, item; sorted) and let time pass, event by event, until every item
    has its outcome. Fails where the engine would sleep for ever or spin."""
    waiting = list(arrivals)
    due_at = loop.turn([], clock())
    spins = 0
    while waiting or not loop.idle:
        instant = min(due_at, device.next_event(), waiting[0][0] if waiting else math.inf)
        if instant > until:
            return
        assert instant < math.inf, "items are waiting and nothing will ever wake the engine"
        spins = spins + 1 if instant <= clock() else 0
        assert spins < 100, "the engine spins without getting on"
        clock.advance_to(max(instant, clock()))
        arrived: list[Item] = []
        while waiting and waiting[0][0] <= clock():
            arrived.append(waiting.pop(0)[1])
        due_at = loop.turn(arrived, clock())
        after_turn(due_at)
