"""The engine's loop on a virtual clock with a scripted device: overlap, settling, failure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batcher import Batcher
from pipeline.bucket import Bucket
from pipeline.engine import EngineLoop
from pipeline.item import Item, Outcome
from pipeline.surface import Surface
from pipeline.window import ConstantPolicy, IntervalPolicy
from schemas.errors import FatalError
from schemas.result import ClosedBy, Status
from tests.builders import LARGE, SMALL, an_item
from tests.fakes.clock import VirtualClock
from tests.fakes.device import FakeDevice, drive

POLICY = ConstantPolicy(constant_s=0.1, min_wait_s=0.01)


class Rig:
    def __init__(self, clock: VirtualClock, device: FakeDevice) -> None:
        self.clock, self.device = clock, device
        self.outcomes: list[Outcome] = []
        surface = Surface()
        self.batcher = Batcher(POLICY, surface)
        self.loop = EngineLoop(self.batcher, surface, device, self.outcomes.extend)


def a_rig(decode_s: float = 0.0, infer_s: float = 0.0, post_s: float = 0.0, slots: int = 2) -> Rig:
    clock = VirtualClock()
    device = FakeDevice(
        clock,
        decode_s=lambda n: decode_s,
        infer_s=lambda n: infer_s,
        post_s=lambda n: post_s,
        slots=slots,
    )
    return Rig(clock, device)


@pytest.mark.parametrize(
    ("decode_s", "infer_s", "post_s"),
    [(1.0, 1.0, 0.0), (0.25, 1.0, 0.0), (1.0, 0.25, 0.0), (0.5, 1.0, 0.75), (1.0, 0.5, 1.0)],
)
def test_the_makespan_is_bound_by_the_slowest_stage_not_by_the_sum(
    decode_s: float, infer_s: float, post_s: float
) -> None:
    """Double buffering: K batches take K times the slowest stage, plus the other stages once."""
    rig = a_rig(decode_s, infer_s, post_s)
    batches = 10
    start = rig.clock()
    items = [an_item(f"cam{i}", received_at=start) for i in range(batches * SMALL.max_batch)]
    drive(rig.loop, rig.device, rig.clock, [(start, item) for item in items])
    stages = (decode_s, infer_s, post_s)
    assert rig.clock() - start == pytest.approx(batches * max(stages) + sum(stages) - max(stages))
    assert len(rig.device.started) == batches


def test_a_single_slot_adds_the_stages_up() -> None:
    """The control experiment: without the second slot the overlap is gone."""
    rig = a_rig(1.0, 1.0, slots=1)
    start = rig.clock()
    items = [an_item(f"cam{i}", received_at=start) for i in range(10 * SMALL.max_batch)]
    drive(rig.loop, rig.device, rig.clock, [(start, item) for item in items])
    assert rig.clock() - start == pytest.approx(20.0)


def test_frames_that_arrive_while_the_device_is_busy_make_fuller_batches() -> None:
    rig = a_rig(infer_s=1.0)
    start = rig.clock()
    arrivals = [
        (start + i * 0.2, an_item(f"cam{i}", received_at=start + i * 0.2)) for i in range(20)
    ]
    drive(rig.loop, rig.device, rig.clock, arrivals)
    sizes = [len(batch.items) for batch in rig.device.started]
    assert sizes[0] == 1
    assert max(sizes) == SMALL.max_batch
    assert sum(sizes) == 20


def test_each_batch_is_delivered_in_one_call_and_teaches_the_surface() -> None:
    clock = VirtualClock()
    device = FakeDevice(clock, infer_s=lambda n: 0.02 * n)
    surface = Surface()
    calls: list[int] = []
    loop = EngineLoop(Batcher(POLICY, surface), surface, device, lambda o: calls.append(len(o)))
    items = [an_item(f"cam{i}", received_at=clock()) for i in range(SMALL.max_batch + 2)]
    drive(loop, device, clock, [(clock(), item) for item in items])
    assert calls == [SMALL.max_batch, 2]
    assert surface.service_s("default", SMALL.name, 3) == pytest.approx(0.06)


def test_expired_frames_are_answered_without_device_time() -> None:
    rig = a_rig(infer_s=1.0)
    start = rig.clock()
    full = [an_item(f"cam{i}", received_at=start) for i in range(2 * SMALL.max_batch)]
    hasty = an_item("hasty", received_at=start, deadline_at=start + 0.5)
    drive(rig.loop, rig.device, rig.clock, [(start, item) for item in [*full, hasty]])
    by_status = {outcome.item.stream: outcome.status for outcome in rig.outcomes}
    assert by_status["hasty"] is Status.EXPIRED
    assert len(rig.device.started) == 2
    assert len(rig.outcomes) == len(full) + 1


def test_a_failed_device_ends_the_engine_and_nothing_more_is_delivered() -> None:
    rig = a_rig(infer_s=1.0)
    rig.loop.turn([an_item(f"cam{i}") for i in range(SMALL.max_batch)], rig.clock())
    rig.clock.advance(5.0)
    rig.device.fail(FatalError("device lost"))
    with pytest.raises(FatalError, match="device lost"):
        rig.loop.turn([], rig.clock())
    assert rig.outcomes == []


def test_an_idle_engine_sleeps_until_an_event() -> None:
    assert a_rig().loop.turn([], 1_000.0) == math.inf


def test_six_cameras_are_woven_into_batches_that_say_why_they_closed() -> None:
    """A fleet in miniature: six cameras at three rates on a device that has time to spare."""
    clock = VirtualClock()
    device = FakeDevice(clock, infer_s=lambda n: 0.004 + 0.001 * n)
    surface = Surface()
    outcomes: list[Outcome] = []
    policy = IntervalPolicy(intervals=3.0, min_wait_s=0.002, max_wait_s=0.25)
    loop = EngineLoop(Batcher(policy, surface), surface, device, outcomes.extend)
    rates = (15, 15, 15, 10, 10, 5)
    arrivals = sorted(
        (
            (clock() + i / fps + cam * 0.003, (f"cam{cam}", i, 1 / fps))
            for cam, fps in enumerate(rates)
            for i in range(3 * fps)
        ),
        key=lambda arrival: arrival[0],
    )
    drive(
        loop,
        device,
        clock,
        [
            (at, an_item(name, seq, received_at=at, interval_s=interval))
            for at, (name, seq, interval) in arrivals
        ],
    )
    assert len(outcomes) == len(arrivals)
    waits = [batch.closed_at - item.received_at for batch in device.started for item in batch.items]
    assert max(waits) <= 0.2 + 1e-9  # three intervals of the fastest, the ceiling
    assert {batch.closed_by for batch in device.started} <= {
        ClosedBy.FULL,
        ClosedBy.IDLE,
        ClosedBy.WINDOW,
    }
    assert len(arrivals) / len(device.started) > 1.5  # batching is happening


@given(
    st.lists(
        st.tuples(
            st.floats(0, 0.2),
            st.integers(0, 4),
            st.sampled_from([SMALL, LARGE]),
            st.none() | st.floats(0.001, 1.0),
        ),
        min_size=1,
        max_size=50,
    ),
    st.floats(0, 0.3),
    st.floats(0, 0.3),
    st.integers(1, 3),
)
def test_every_admitted_item_has_exactly_one_outcome(
    script: list[tuple[float, int, object, float | None]],
    decode_s: float,
    infer_s: float,
    slots: int,
) -> None:
    rig = a_rig(decode_s, infer_s, 0.01, slots)
    at = rig.clock()
    arrivals = []
    for seq, (passed, stream, bucket, ttl) in enumerate(script):
        at += passed
        item = an_item(
            f"cam{stream}",
            seq,
            received_at=at,
            bucket=bucket,
            deadline_at=math.inf if ttl is None else at + ttl,
        )
        arrivals.append((at, item))
    drive(rig.loop, rig.device, rig.clock, arrivals)
    assert sorted(o.item.attempt_id for o in rig.outcomes) == [i.attempt_id for _, i in arrivals]
    assert rig.loop.idle


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 0.3), st.integers(0, 3), st.sampled_from([SMALL, LARGE]), st.booleans()
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_a_suspect_has_the_device_to_itself(
    steps: list[tuple[float, int, Bucket, bool]], slots: int
) -> None:
    rig = a_rig(0.1, 0.2, 0.1, slots=slots)
    arrivals: list[tuple[float, Item]] = []
    now = rig.clock()
    for seq, (passed, stream, bucket, solo) in enumerate(steps):
        now += passed
        item = an_item(f"cam{stream}", seq, received_at=now, bucket=bucket, solo=solo)
        arrivals.append((now, item))
    drive(rig.loop, rig.device, rig.clock, arrivals)
    assert sorted(o.item.attempt_id for o in rig.outcomes) == sorted(
        item.attempt_id for _, item in arrivals
    )
    spans: dict[int, tuple[float, float]] = {}
    for outcome in rig.outcomes:
        assert outcome.batch is not None
        assert outcome.times is not None
        spans[outcome.batch.batch_id] = (outcome.times.started_at, outcome.times.finished_at)
        solo = outcome.batch.closed_by is ClosedBy.SOLO
        assert solo == outcome.item.solo
        assert not solo or len(outcome.batch.items) == 1
    alone = [o.batch.batch_id for o in rig.outcomes if o.batch is not None and o.item.solo]
    for number in alone:
        began, ended = spans.pop(number)
        assert all(end <= began or start >= ended for start, end in spans.values())


def test_a_shortage_of_memory_lowers_the_cap_and_its_end_raises_it() -> None:
    rig = a_rig(0.0, 0.1, 0.0)
    rig.device.room = 2

    def run(count: int) -> list[int]:
        before = len(rig.device.started)
        start = rig.clock()
        items = [an_item(f"cam{i}", received_at=start) for i in range(count)]
        drive(rig.loop, rig.device, rig.clock, [(start, item) for item in items])
        return [len(batch.items) for batch in rig.device.started[before:]]

    assert run(4) == [4]
    assert run(8) == [2, 2, 2, 2]
    rig.device.room = None
    for _ in range(20):
        rig.clock.advance(60.0)
        run(8)
    assert run(8) == [4, 4]
    assert len(rig.outcomes) == 4 + 8 + 20 * 8 + 8
