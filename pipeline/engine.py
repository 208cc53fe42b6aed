"""The engine: takes items in, has the batcher close batches, runs them in slots, hands answers out.

`EngineLoop` is one turn of the loop without a thread or a clock of its own: take what arrived,
settle what finished, expire, start what is due. `Engine` puts it on a thread that sleeps on a
condition until the exact next due instant or the next event, never on a polling tick.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pipeline.batcher import Batcher, DeviceView, QueueDepth
from pipeline.cap import Caps
from pipeline.drift import Drift
from pipeline.item import Batch, Item, Outcome
from pipeline.ports import BatchDone, Clock, Device
from pipeline.surface import Surface
from schemas.errors import FatalError
from schemas.result import ClosedBy, Status

log = logging.getLogger(__name__)

Deliver = Callable[[Sequence[Outcome]], None]
"""Takes the outcomes of one batch (all share `.batch`), or of expired items (`.batch` is None).
Called on the engine thread; must not block."""

Drifted = Callable[[Drift], None]
"""Told when the time of a bucket's batches left what was measured at the start, or came back.
Called on the engine thread; must not block."""

MAX_SLEEP_S = 3600.0
"""Longest single wait; conditions refuse infinite time-outs."""


class EngineLoop:
    """One turn of the engine, free of threads and clocks. Owned by one thread."""

    def __init__(
        self,
        batcher: Batcher,
        surface: Surface,
        device: Device,
        deliver: Deliver,
        drifted: Drifted = lambda _: None,
    ) -> None:
        self._batcher = batcher
        self._drifted = drifted
        self._surface = surface
        self._device = device
        self._deliver = deliver
        self._caps = Caps()
        self._running: dict[int, tuple[Batch, float]] = {}

    def turn(self, arrived: Sequence[Item], now: float) -> float:
        """Settle, admit, expire, start. Returns the next due instant (monotonic seconds; infinity
        when only an event can change anything).

        Raises:
            FatalError: the device failed; nothing that it holds may be answered.
        """
        if self._device.failure is not None:
            raise self._device.failure
        self._settle(now)
        for item in arrived:
            self._batcher.add(item, now)
        self._answer_expired(self._batcher.expire(now))
        self._start_due(now)
        return self._batcher.next_due(now, self._view(now))

    @property
    def idle(self) -> bool:
        """True when nothing waits and nothing runs: every admitted item has its outcome."""
        return not len(self._batcher) and not self._running

    @property
    def running(self) -> int:
        """Batches started and not yet finished (post-processing included)."""
        return len(self._running)

    def _settle(self, now: float) -> None:
        for done in self._device.collect():
            batch, size = done.batch, len(done.batch.items)
            del self._running[batch.batch_id]
            self._learn(done)
            limit = self._caps.observe(batch.route, batch.bucket, size, done.fits, now)
            if limit is not None:
                log.warning("%s/%s takes %d frames now", batch.route, batch.bucket.name, limit)
                self._batcher.limit(batch.route, batch.bucket.name, limit)
            self._deliver(done.outcomes)

    def _learn(self, done: BatchDone) -> None:
        # A batch that ran in parts says nothing about how long one run takes, and neither does one
        # that lost rows on the way to the model.
        if done.fits is not None or any(outcome.error for outcome in done.outcomes):
            return
        batch, times = done.batch, done.times
        drift = self._surface.observe(
            batch.route, batch.bucket.name, len(batch.items), times.infer_s,
            around_s=times.decode_s + times.post_s, model_s=done.model_s,
        )  # fmt: skip
        if drift is not None:
            said = "drifted from" if drift.alarmed else "came back to"
            log.warning(
                "%s/%s: the model's time %s what was measured at the start (%.2f times it)",
                drift.route, drift.bucket, said, drift.ratio,
            )  # fmt: skip
            self._drifted(drift)

    def _answer_expired(self, items: Sequence[Item]) -> None:
        if items:
            self._deliver([Outcome(item, Status.EXPIRED) for item in items])

    def _start_due(self, now: float) -> None:
        while True:
            decision = self._batcher.next(now, self._view(now))
            self._answer_expired(decision.expired)
            if decision.batch is not None:
                self._running[decision.batch.batch_id] = (decision.batch, now)
                self._device.start(decision.batch)
            elif not decision.expired:
                return

    def _view(self, now: float) -> DeviceView:
        running = self._running.values()
        alone = any(batch.items[0].solo for batch, _ in running)
        slot_free = not alone and self._device.free_slots > 0
        return DeviceView(
            slot_free=slot_free,
            compute_idle=self._device.compute_idle,
            # Without a free slot nothing is closed, and nobody asks.
            backlog_s=self._backlog_s(now) if slot_free and running else 0.0,
            empty=not running,
        )

    def _backlog_s(self, now: float) -> float:
        """Predicted seconds until every running batch is done: they share one model stage."""
        backlog_s = 0.0
        for batch, started_at in self._running.values():
            service_s = self._surface.service_s(batch.route, batch.bucket.name, len(batch.items))
            done_at = max(started_at, now - service_s) + service_s
            backlog_s += max(0.0, done_at - now)
        return backlog_s


class EngineState(Enum):
    """NEW → RUNNING → DRAINING → STOPPED, and FAILED from any but STOPPED."""

    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    """Takes no more items; everything queued is closed by `drain`."""
    STOPPED = "stopped"
    """The last outcome was delivered."""
    FAILED = "failed"
    """A FatalError was reported; nothing more is delivered."""


_NEXT: dict[EngineState, frozenset[EngineState]] = {
    EngineState.NEW: frozenset({EngineState.RUNNING, EngineState.STOPPED}),
    EngineState.RUNNING: frozenset({EngineState.DRAINING, EngineState.FAILED}),
    EngineState.DRAINING: frozenset({EngineState.STOPPED, EngineState.FAILED}),
    EngineState.STOPPED: frozenset(),
    EngineState.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class EngineSnapshot:
    """What the engine looks like between two turns.

    Attributes:
        state: its state now.
        inbox: items submitted and not yet queued.
        depths: frames waiting per (route, bucket).
        running: batches started and not finished.
        free_slots: slots that could take a batch.
        drifts: how the measured (route, bucket) pairs stand against their measurement.
    """

    state: EngineState
    inbox: int
    depths: tuple[QueueDepth, ...]
    running: int
    free_slots: int
    drifts: tuple[Drift, ...] = ()


@dataclass(frozen=True, slots=True)
class _Flush:
    closed_by: ClosedBy
    partitions: frozenset[tuple[str, int]] | None


class Engine:
    """The engine thread. Public methods may be called from any thread and never block, except
    `stop`, and `snapshot` for a moment.

    Args:
        batcher, surface: the engine thread's alone from now on.
        device: likewise; its threads notify this engine.
        deliver: see `Deliver`.
        fail: called once, on the engine thread, when the process must end without committing.
        drifted: see `Drifted`.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        batcher: Batcher,
        surface: Surface,
        device: Device,
        *,
        deliver: Deliver,
        fail: Callable[[FatalError], None],
        drifted: Drifted = lambda _: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._batcher = batcher
        self._surface = surface
        self._device = device
        self._loop = EngineLoop(batcher, surface, device, deliver, drifted)
        self._fail = fail
        self._clock = clock
        self._changed = threading.Condition()
        self._woken = False
        self._state = EngineState.NEW
        self._inbox: deque[Item] = deque()
        self._flushes: deque[_Flush] = deque()
        self._turning = threading.Lock()
        """Held for a turn of the loop, and by who looks at what the loop owns."""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        device.listen(self._wake)

    @property
    def state(self) -> EngineState:
        return self._state

    def start(self) -> None:
        """NEW → RUNNING."""
        with self._changed:
            self._enter(EngineState.RUNNING)
        self._thread.start()

    def submit(self, items: Sequence[Item]) -> None:
        """Admit items. The caller bounds them by its credits.

        Raises:
            RuntimeError: the engine is not running (never started, draining, stopped, failed).
        """
        with self._changed:
            if self._state is not EngineState.RUNNING:
                raise RuntimeError(f"the engine is {self._state.value} and takes no items")
            self._inbox.extend(items)
            self._notify()

    def flush(
        self, closed_by: ClosedBy, partitions: frozenset[tuple[str, int]] | None = None
    ) -> None:
        """Close at once every queue that holds items of these (topic, partition); None: all."""
        with self._changed:
            self._flushes.append(_Flush(closed_by, partitions))
            self._notify()

    def drain(self) -> None:
        """RUNNING → DRAINING → (when the last outcome was delivered) STOPPED. No-op later on."""
        with self._changed:
            if self._state is EngineState.NEW:
                self._enter(EngineState.STOPPED)
            elif self._state is EngineState.RUNNING:
                self._enter(EngineState.DRAINING)
                self._flushes.append(_Flush(ClosedBy.DRAIN, None))
            self._notify()

    def stop(self, timeout_s: float) -> bool:
        """Drain and wait for the end of the engine's thread and then of the device's. True when all
        ended in time; a native call that hangs can keep one of them."""
        deadline_at = self._clock() + timeout_s
        self.drain()
        if self._thread.ident is None:
            self._device.close()
        else:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        return self._device.join(max(0.0, deadline_at - self._clock()))

    def snapshot(self) -> EngineSnapshot:
        """The state of the queues between two turns. Waits for the end of a turn, which makes no
        blocking call itself."""
        with self._turning:
            return EngineSnapshot(
                self._state,
                len(self._inbox),
                tuple(self._batcher.depths()),
                self._loop.running,
                self._device.free_slots,
                self._surface.drifts(),
            )

    def _enter(self, state: EngineState) -> None:
        if state not in _NEXT[self._state]:
            raise RuntimeError(f"the engine cannot go from {self._state.value} to {state.value}")
        self._state = state

    def _wake(self) -> None:
        with self._changed:
            self._notify()

    def _notify(self) -> None:
        self._woken = True
        self._changed.notify()

    def _run(self) -> None:
        try:
            self._run_until_stopped()
        except FatalError as error:
            self._end_failed(error)
        except Exception as error:
            log.exception("the engine thread failed")
            self._end_failed(FatalError(f"engine: {type(error).__name__}: {error}"))
        finally:
            self._device.close()

    def _run_until_stopped(self) -> None:
        due_at = math.inf
        while True:
            items, flushes, draining = self._wait(due_at)
            with self._turning:
                due_at = self._loop.turn(items, self._clock())
                if flushes:
                    for flush in flushes:
                        self._batcher.flush(flush.closed_by, flush.partitions)
                    due_at = self._loop.turn((), self._clock())
            if draining and self._loop.idle:
                with self._changed:
                    self._enter(EngineState.STOPPED)
                return

    def _wait(self, due_at: float) -> tuple[list[Item], list[_Flush], bool]:
        """Sleep until something happened or `due_at`; take what happened."""
        with self._changed:
            while not self._woken:
                remaining = due_at - self._clock()
                if remaining <= 0:
                    break
                self._changed.wait(min(remaining, MAX_SLEEP_S))
            self._woken = False
            items, flushes = list(self._inbox), list(self._flushes)
            self._inbox.clear()
            self._flushes.clear()
            return items, flushes, self._state is EngineState.DRAINING

    def _end_failed(self, error: FatalError) -> None:
        with self._changed:
            self._enter(EngineState.FAILED)
        self._fail(error)
