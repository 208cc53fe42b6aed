"""What devices whose batches pass through slots have in common, whatever their stages are."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from pipeline.batch_work import Work
from pipeline.item import Batch
from pipeline.ports import BatchDone, Clock, Lane
from pipeline.slot import Slot, SlotState
from pipeline.stage_threads import StageThreads
from schemas.errors import FatalError

S = TypeVar("S", bound=Slot)
W = TypeVar("W", bound=Work)


class SlotDevice(ABC, Generic[S, W]):
    """The `Device` port over slots and stages; a subclass says what the stages do.

    Args:
        lanes: route name → decoder, model and post-processor.
        slots: all of them free.
        clock: monotonic seconds.
    """

    IDLE = frozenset({SlotState.FREE})
    """States of a slot that has nothing before or in the model stage."""

    def __init__(self, lanes: Mapping[str, Lane], slots: Sequence[S], clock: Clock) -> None:
        self._lanes = lanes
        self._slots = slots
        self._clock = clock
        self._lock = threading.Lock()
        self._done: deque[BatchDone] = deque()
        self._failure: FatalError | None = None
        self._notify: Callable[[], None] = lambda: None
        self._prepare()
        self._threads = StageThreads[W](self._stages(), self._fail)

    def _prepare(self) -> None:
        """Before the threads start."""

    @abstractmethod
    def _stages(self) -> Sequence[tuple[str, Callable[[W], None]]]:
        """See `StageThreads`."""

    @abstractmethod
    def _work(self, batch: Batch, slot: S) -> W:
        """A batch that starts now in this slot."""

    @property
    def free_slots(self) -> int:
        """See `Device.free_slots`."""
        with self._lock:
            return sum(slot.state is SlotState.FREE for slot in self._slots)

    @property
    def compute_idle(self) -> bool:
        """See `Device.compute_idle`."""
        with self._lock:
            return all(slot.state in self.IDLE for slot in self._slots)

    @property
    def failure(self) -> FatalError | None:
        """See `Device.failure`."""
        return self._failure

    def listen(self, notify: Callable[[], None]) -> None:
        """See `Device.listen`."""
        self._notify = notify

    def start(self, batch: Batch) -> None:
        """See `Device.start`."""
        with self._lock:
            slot = next((s for s in self._slots if s.state is SlotState.FREE), None)
            if slot is None:
                raise RuntimeError("no free slot")
            slot.enter(SlotState.DECODING)
        self._threads.put(self._work(batch, slot))

    def collect(self) -> list[BatchDone]:
        """See `Device.collect`."""
        done: list[BatchDone] = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def close(self) -> None:
        """See `Device.close`: each stage ends after the work before it."""
        self._threads.close()

    def join(self, timeout_s: float) -> bool:
        """See `Device.join`: the decoders are closed once all threads have ended."""
        if not self._threads.join(timeout_s):
            return False
        for lane in self._lanes.values():
            lane.decoder.close()
        return True

    def _enter(self, slot: S, state: SlotState) -> None:
        with self._lock:
            slot.enter(state)

    def _fail(self, error: FatalError) -> None:
        self._failure = error
        self._notify()
