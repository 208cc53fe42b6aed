"""The engine thread: states, waking, drain, failure. No test waits by sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from pipeline.batcher import Batcher
from pipeline.engine import Engine, EngineState
from pipeline.item import Outcome
from pipeline.ports import Lane
from pipeline.slots import ThreadedDevice
from pipeline.surface import Surface
from pipeline.window import ConstantPolicy, FixedPolicy, WindowPolicy
from schemas.errors import FatalError
from schemas.result import ClosedBy
from tests.builders import SMALL, an_item
from tests.fakes.lane import FakeDecoder, FakeModel, FakePostprocessor

DEADLINE_S = 180.0
EAGER = ConstantPolicy(constant_s=0.0, min_wait_s=0.0)
PATIENT = FixedPolicy(3_600.0)


class Rig:
    def __init__(self, policy: WindowPolicy) -> None:
        self.model = FakeModel()
        self.decoder = FakeDecoder()
        lane = Lane(self.decoder, self.model, FakePostprocessor())
        self.device = ThreadedDevice({"default": lane})
        self.outcomes: list[Outcome] = []
        self.failures: list[FatalError] = []
        self._changed = threading.Condition()
        surface = Surface()
        self.engine = Engine(
            Batcher(policy, surface),
            surface,
            self.device,
            deliver=self._deliver,
            fail=self._fail,
        )

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        with self._changed:
            self.outcomes.extend(outcomes)
            self._changed.notify_all()

    def _fail(self, error: FatalError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_S)


def test_items_come_back_answered() -> None:
    rig = Rig(EAGER)
    rig.engine.start()
    for level in range(10):
        rig.engine.submit([an_item(f"cam{level}", data=bytes([level]))])
    rig.until(lambda: len(rig.outcomes) == 10)
    levels = {o.item.stream: o.detections[0].class_id for o in rig.outcomes}
    assert levels == {f"cam{level}": level for level in range(10)}
    assert rig.engine.stop(DEADLINE_S)
    assert rig.engine.state is EngineState.STOPPED


def test_drain_answers_everything_that_waits_and_then_stops() -> None:
    rig = Rig(PATIENT)
    rig.engine.start()
    rig.engine.submit(
        [
            an_item(f"cam{i}", data=b"\x01", received_at=time.monotonic())
            for i in range(SMALL.max_batch + 1)
        ]
    )
    rig.engine.drain()
    assert rig.engine.stop(DEADLINE_S)
    assert len(rig.outcomes) == SMALL.max_batch + 1
    batches = [outcome.batch for outcome in rig.outcomes]
    assert batches[-1] is not None
    assert batches[-1].closed_by is ClosedBy.DRAIN


def test_flush_closes_by_revoke_and_the_engine_goes_on() -> None:
    rig = Rig(PATIENT)
    rig.engine.start()
    rig.engine.submit([an_item(data=b"\x01", received_at=time.monotonic())])
    rig.engine.flush(ClosedBy.REVOKE, frozenset({("frames", 0)}))
    rig.until(lambda: len(rig.outcomes) == 1)
    batch = rig.outcomes[0].batch
    assert batch is not None
    assert batch.closed_by is ClosedBy.REVOKE
    assert rig.engine.state is EngineState.RUNNING
    assert rig.engine.stop(DEADLINE_S)


@pytest.mark.parametrize("stage", ["new", "draining", "stopped"])
def test_items_are_refused_unless_running(stage: str) -> None:
    rig = Rig(PATIENT)
    if stage != "new":
        rig.engine.start()
        rig.engine.drain()
    if stage == "stopped":
        assert rig.engine.stop(DEADLINE_S)
    with pytest.raises(RuntimeError, match="takes no items"):
        rig.engine.submit([an_item(received_at=time.monotonic())])
    rig.device.close()


def test_starting_twice_is_illegal() -> None:
    rig = Rig(EAGER)
    rig.engine.start()
    with pytest.raises(RuntimeError, match="cannot go from running to running"):
        rig.engine.start()
    assert rig.engine.stop(DEADLINE_S)


def test_an_engine_that_never_started_stops_at_once() -> None:
    rig = Rig(EAGER)
    assert rig.engine.stop(DEADLINE_S)
    assert rig.engine.state is EngineState.STOPPED
    assert rig.decoder.closed


def test_a_device_failure_is_reported_once_and_the_engine_fails() -> None:
    rig = Rig(EAGER)

    def broken(levels: list[int]) -> None:
        raise RuntimeError("device lost")

    rig.model.before = broken
    rig.engine.start()
    rig.engine.submit([an_item(data=b"\x01", received_at=time.monotonic())])
    rig.until(lambda: bool(rig.failures))
    assert [str(error) for error in rig.failures] == [
        "the model stage: fails on harmless input too: RuntimeError: device lost"
    ]
    assert rig.engine.stop(DEADLINE_S)
    assert rig.engine.state is EngineState.FAILED
    assert rig.outcomes == []
    rig.engine.drain()  # a no-op after failure


def test_a_failing_consumer_of_outcomes_fails_the_engine() -> None:
    rig = Rig(EAGER)

    def refuse(outcomes: Sequence[Outcome]) -> None:
        raise ValueError("the loop is closed")

    surface = Surface()
    engine = Engine(Batcher(EAGER, surface), surface, rig.device, deliver=refuse, fail=rig._fail)
    engine.start()
    engine.submit([an_item(data=b"\x01", received_at=time.monotonic())])
    rig.until(lambda: bool(rig.failures))
    assert engine.stop(DEADLINE_S)
    assert engine.state is EngineState.FAILED


def test_the_snapshot_shows_what_waits() -> None:
    rig = Rig(PATIENT)
    assert rig.engine.snapshot().state is EngineState.NEW
    rig.engine.start()
    rig.engine.submit(
        [
            an_item(f"cam{i}", data=b"\x01", received_at=time.monotonic())
            for i in range(SMALL.max_batch + 1)
        ]
    )
    rig.until(lambda: len(rig.outcomes) == SMALL.max_batch)
    snapshot = rig.engine.snapshot()
    assert snapshot.state is EngineState.RUNNING
    assert [(d.bucket, d.waiting) for d in snapshot.depths] == [(SMALL.name, 1)]
    assert rig.engine.stop(DEADLINE_S)
