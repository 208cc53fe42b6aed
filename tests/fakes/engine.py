"""An engine that answers by script, in place of `pipeline.engine.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.engine import EngineSnapshot, EngineState
from pipeline.item import Batch, Item, Outcome, StageTimes
from schemas.errors import FatalError, PoisonError
from schemas.result import ClosedBy, ModelInfo

MODEL = ModelInfo(name="fake", version="0" * 12, task="detect", conf=0.25, iou=0.7)


class ScriptedEngine:
    """Holds what it is given until `answer` is called, on the caller's thread.

    Attributes:
        held: items without an outcome, in the order submitted.
        flushes: the arguments of every `flush`.
    """

    def __init__(
        self,
        deliver: Callable[[Sequence[Outcome]], None],
        fail: Callable[[FatalError], None],
    ) -> None:
        self.deliver, self.fail = deliver, fail
        self.held: list[Item] = []
        self.flushes: list[tuple[ClosedBy, frozenset[tuple[str, int]] | None]] = []
        self.on_submit: Callable[[], None] = lambda: None
        self.on_flush: Callable[[], None] = lambda: None
        self.state = EngineState.NEW

    def start(self) -> None:
        self.state = EngineState.RUNNING

    def submit(self, items: Sequence[Item]) -> None:
        if self.state is not EngineState.RUNNING:
            raise RuntimeError(f"the engine is {self.state.value}")
        self.held += items
        self.on_submit()

    def flush(
        self, closed_by: ClosedBy, partitions: frozenset[tuple[str, int]] | None = None
    ) -> None:
        self.flushes.append((closed_by, partitions))
        self.on_flush()

    def drain(self) -> None:
        if self.state is EngineState.RUNNING:
            self.state = EngineState.DRAINING
        self.on_flush()

    def stop(self, timeout_s: float) -> bool:
        self.state = EngineState.STOPPED
        return True

    def snapshot(self) -> EngineSnapshot:
        return EngineSnapshot(self.state, len(self.held), (), 0, 1)

    def answer(self, *items: Item, error: PoisonError | None = None) -> None:
        """Finish these items (none named: all held) as one batch."""
        chosen = items or tuple(self.held)
        self.held = [item for item in self.held if item not in chosen]
        if not chosen:
            return
        first = chosen[0]
        batch = Batch(1, first.route, first.bucket, chosen, ClosedBy.IDLE, first.received_at)
        times = StageTimes(first.received_at, first.received_at, 0.0, 0.0, 0.0)
        self.deliver(
            [
                Outcome(item, error=error, batch=batch, index=index, times=times)
                for index, item in enumerate(chosen)
            ]
        )
