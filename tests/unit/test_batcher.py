"""The batcher's decisions on a virtual clock: tables first, then properties."""

from __future__ import annotations

import math
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.batcher import Batcher, DeviceView
from pipeline.item import Batch, Item
from pipeline.surface import Surface
from pipeline.window import ConstantPolicy, FixedPolicy, IntervalPolicy, WindowPolicy
from schemas.result import ClosedBy
from tests.builders import LARGE, SMALL, an_item

IDLE = DeviceView(slot_free=True, compute_idle=True)
BUSY = DeviceView(slot_free=True, compute_idle=False)
FULLY_BUSY = DeviceView(slot_free=False, compute_idle=False)

NOW = 1_000.0
WINDOW = ConstantPolicy(constant_s=0.1, min_wait_s=0.01)
INTERVAL = IntervalPolicy(intervals=3.0, min_wait_s=0.01, max_wait_s=0.25)


def a_batcher(policy: WindowPolicy = WINDOW, surface: Surface | None = None) -> Batcher:
    return Batcher(policy, surface or Surface())


def slow_surface(seconds: float) -> Surface:
    surface = Surface()
    surface.observe("default", SMALL.name, SMALL.max_batch, seconds)
    return surface


def closed(batcher: Batcher, now: float, view: DeviceView) -> Batch | None:
    return batcher.next(now, view).batch


def streams_of(batch: Batch | None) -> list[str]:
    assert batch is not None
    return [item.stream for item in batch.items]


# -- full ----------------------------------------------------------------------------------------


def test_full_closes_at_once() -> None:
    batcher = a_batcher()
    for index in range(SMALL.max_batch):
        assert closed(batcher, NOW, BUSY) is None
        batcher.add(an_item(f"cam{index}"), NOW)
    batch = closed(batcher, NOW, BUSY)
    assert batch is not None
    assert batch.closed_by is ClosedBy.FULL
    assert len(batch.items) == SMALL.max_batch
    assert not len(batcher)


def test_nothing_closes_without_a_slot() -> None:
    batcher = a_batcher()
    for index in range(3 * SMALL.max_batch):
        batcher.add(an_item(f"cam{index}"), NOW)
    assert closed(batcher, NOW + 9, FULLY_BUSY) is None
    assert batcher.next_due(NOW + 9, FULLY_BUSY) == math.inf


def test_a_backlog_leaves_in_full_batches() -> None:
    batcher = a_batcher()
    for index in range(2 * SMALL.max_batch + 1):
        batcher.add(an_item(f"cam{index}"), NOW)
    sizes: list[int] = []
    while (batch := closed(batcher, NOW, BUSY)) is not None:
        sizes.append(len(batch.items))
    assert sizes == [SMALL.max_batch, SMALL.max_batch]
    assert len(batcher) == 1


def test_under_lasting_load_nothing_holds_a_frame_that_has_left() -> None:
    """Every batch closes because it is full, so nobody asks which frame is due or oldest. A frame
    holds the bytes of its record: keeping one too many for ever is how memory runs out."""
    batcher = a_batcher()
    backlog = 2 * SMALL.max_batch
    held: list[weakref.ref[memoryview]] = []
    for index in range(2_000):
        now = NOW + index / 1_000
        stream = f"cam{index % 50}"
        late = an_item(stream, index, received_at=now, deadline_at=now + 60, interval_s=0.1)
        held.append(weakref.ref(late.frame.data))
        batcher.add(late, now)
        if len(batcher) > backlog:
            batch = closed(batcher, now, BUSY)
            assert batch is not None
            assert batch.closed_by is ClosedBy.FULL
    del late, batch
    assert sum(each() is not None for each in held) == len(batcher)


# -- full by the size that suffices ----------------------------------------------------------------


def preferring(size: int) -> Surface:
    """A surface on which batches beyond `size` are no faster per frame."""
    seconds = {n: 0.01 * max(1.0, n / size) for n in (1, 2, 4, 8)}
    surface = Surface({("default", SMALL.name): seconds})
    assert surface.preferred("default", SMALL.name) == size
    return surface


def test_an_idle_device_takes_as_many_as_bring_it_to_its_best_speed() -> None:
    batcher = a_batcher(surface=preferring(2))
    for name in ("cam0", "cam1"):
        batcher.add(an_item(name, received_at=NOW, interval_s=0.05), NOW)
    assert closed(batcher, NOW, IDLE) is None
    assert batcher.next_due(NOW, IDLE) == NOW + WINDOW.min_wait_s
    batch = closed(batcher, NOW + WINDOW.min_wait_s, IDLE)
    assert batch is not None
    assert (batch.closed_by, len(batch.items)) == (ClosedBy.FULL, 2)


def test_while_the_device_is_busy_frames_gather_to_the_largest_batch() -> None:
    batcher = a_batcher(surface=preferring(2))
    for index in range(3):
        batcher.add(an_item(f"cam{index}", received_at=NOW, interval_s=0.05), NOW)
    assert closed(batcher, NOW + 0.05, BUSY) is None
    batcher.add(an_item("cam3", received_at=NOW, interval_s=0.05), NOW + 0.05)
    batch = closed(batcher, NOW + 0.05, BUSY)
    assert batch is not None
    assert len(batch.items) == SMALL.max_batch == 4


def slowing(size: int) -> Surface:
    """A surface on which batches beyond `size` are slower per frame, as on a CPU."""
    seconds = {n: 0.01 * n * (1.0 if n <= size else 1.5) for n in (1, 2, 3, 4)}
    surface = Surface({("default", SMALL.name): seconds})
    assert surface.worthwhile("default", SMALL.name) == size
    return surface


def test_a_backlog_leaves_in_batches_of_the_size_at_which_the_device_is_fastest() -> None:
    batcher = a_batcher(surface=slowing(3))
    for index in range(7):
        batcher.add(an_item(f"cam{index}", received_at=NOW), NOW)
    sizes: list[int] = []
    while (batch := closed(batcher, NOW, BUSY)) is not None:
        assert batch.closed_by is ClosedBy.FULL
        sizes.append(len(batch.items))
        assert (batch.limit, batch.fill) == (3, 1.0)
    assert sizes == [3, 3]
    assert batcher.depths()[0].limit == 3


def test_a_device_short_of_memory_takes_the_lower_of_both_limits() -> None:
    batcher = a_batcher(surface=slowing(2))
    for index in range(4):
        batcher.add(an_item(f"cam{index}", received_at=NOW), NOW)
    for most, limit in ((1, 1), (3, 2)):
        batcher.limit("default", SMALL.name, most)
        assert batcher.depths()[0].limit == limit


def test_the_baseline_takes_its_full_batch_though_it_is_slower() -> None:
    batcher = a_batcher(FixedPolicy(10.0), slowing(2))
    for index in range(4):
        batcher.add(an_item(f"cam{index}", received_at=NOW), NOW)
    batch = closed(batcher, NOW, BUSY)
    assert batch is not None
    assert len(batch.items) == SMALL.max_batch == 4


def test_the_baseline_waits_for_its_full_batch_on_any_surface() -> None:
    batcher = a_batcher(FixedPolicy(10.0), preferring(1))
    batcher.add(an_item("cam0", received_at=NOW), NOW)
    assert closed(batcher, NOW + 1, IDLE) is None


# -- window --------------------------------------------------------------------------------------


def test_the_window_closes_at_its_exact_instant() -> None:
    batcher = a_batcher()
    batcher.add(an_item(received_at=NOW), NOW)
    due_at = batcher.next_due(NOW, BUSY)
    assert due_at == NOW + 0.1
    assert closed(batcher, math.nextafter(due_at, 0), BUSY) is None
    batch = closed(batcher, due_at, BUSY)
    assert batch is not None
    assert batch.closed_by is ClosedBy.WINDOW
    assert batch.closed_at == due_at


def test_one_due_frame_takes_all_waiting_ones_along() -> None:
    batcher = a_batcher()
    batcher.add(an_item("a", received_at=NOW), NOW)
    batcher.add(an_item("b", received_at=NOW + 0.09), NOW + 0.09)
    assert streams_of(closed(batcher, NOW + 0.1, BUSY)) == ["a", "b"]


def test_the_window_runs_from_receipt_not_from_queueing() -> None:
    batcher = a_batcher()
    batcher.add(an_item(received_at=NOW - 0.08), NOW)
    assert batcher.next_due(NOW, BUSY) == pytest.approx(NOW + 0.02)


@pytest.mark.parametrize(("interval_s", "wait_s"), [(1 / 30, 0.1), (1 / 15, 0.2), (1.0, 0.25)])
def test_a_window_of_three_of_the_streams_own_intervals(interval_s: float, wait_s: float) -> None:
    batcher = a_batcher(INTERVAL)
    batcher.add(an_item(interval_s=interval_s), NOW)
    assert batcher.next_due(NOW, BUSY) == pytest.approx(NOW + wait_s)


def test_the_predicted_service_time_shortens_the_window() -> None:
    batcher = a_batcher(INTERVAL, slow_surface(0.04))
    batcher.add(an_item(interval_s=1 / 30), NOW)
    assert batcher.next_due(NOW, BUSY) == pytest.approx(NOW + 0.06)


def test_the_interval_is_learned_from_capture_times() -> None:
    batcher = a_batcher(INTERVAL)
    for index in range(5):
        at = NOW + index * 0.05
        batcher.add(an_item(seq=index, received_at=at), at)
        batcher.flush(ClosedBy.DRAIN)
        assert closed(batcher, at, BUSY) is not None
    at = NOW + 5 * 0.05
    batcher.add(an_item(seq=5, received_at=at), at)
    assert batcher.next_due(at, BUSY) == pytest.approx(at + 0.15)


# -- idle ----------------------------------------------------------------------------------------


def test_an_idle_device_takes_a_lone_stream_after_the_least_wait() -> None:
    batcher = a_batcher(INTERVAL)
    batcher.add(an_item(interval_s=0.05), NOW)
    assert closed(batcher, NOW, IDLE) is None
    due_at = batcher.next_due(NOW, IDLE)
    assert due_at == NOW + 0.01
    batch = closed(batcher, due_at, IDLE)
    assert batch is not None
    assert batch.closed_by is ClosedBy.IDLE


def test_a_busy_device_leaves_the_window_open() -> None:
    batcher = a_batcher(INTERVAL)
    batcher.add(an_item(interval_s=0.05), NOW)
    assert closed(batcher, NOW + 0.02, BUSY) is None


def two_streams_seen_once(batcher: Batcher) -> None:
    for stream in ("a", "b"):
        batcher.add(an_item(stream, received_at=NOW, interval_s=0.05), NOW)
    assert streams_of(closed(batcher, NOW + 0.01, IDLE)) == ["a", "b"]


def test_idle_waits_for_a_stream_that_is_expected_inside_the_window() -> None:
    batcher = a_batcher(INTERVAL)
    two_streams_seen_once(batcher)
    batcher.add(an_item("a", 1, received_at=NOW + 0.05, interval_s=0.05), NOW + 0.05)
    assert closed(batcher, NOW + 0.06, IDLE) is None  # b is late, but may come at any moment
    batcher.add(an_item("b", 1, received_at=NOW + 0.065, interval_s=0.05), NOW + 0.065)
    assert streams_of(closed(batcher, NOW + 0.065, IDLE)) == ["a", "b"]


def test_idle_gives_up_on_a_stream_that_does_not_come() -> None:
    batcher = a_batcher(INTERVAL)
    two_streams_seen_once(batcher)
    batcher.add(an_item("a", 1, received_at=NOW + 0.05, interval_s=0.05), NOW + 0.05)
    now = NOW + 0.05
    for _ in range(5):
        now = batcher.next_due(now, IDLE)
        batch = closed(batcher, now, IDLE)
        if batch is not None:
            break
    assert streams_of(batch) == ["a"]
    assert batch is not None
    assert batch.closed_by is ClosedBy.IDLE
    assert now == pytest.approx(NOW + 0.05 + 0.025)  # half an interval of grace


def test_idle_does_not_wait_for_a_stream_expected_after_the_window() -> None:
    batcher = a_batcher(INTERVAL)
    batcher.add(an_item("slow", received_at=NOW, interval_s=2.0), NOW)
    assert streams_of(closed(batcher, NOW + 0.01, IDLE)) == ["slow"]
    batcher.add(an_item("fast", received_at=NOW + 0.1, interval_s=0.05), NOW + 0.1)
    assert streams_of(closed(batcher, NOW + 0.11, IDLE)) == ["fast"]


def test_fixed_waits_for_a_full_batch_whatever_the_device_does() -> None:
    batcher = a_batcher(FixedPolicy(5.0))
    batcher.add(an_item(), NOW)
    assert closed(batcher, NOW + 4.9, IDLE) is None
    assert batcher.next_due(NOW, IDLE) == NOW + 5.0


# -- deadlines -----------------------------------------------------------------------------------


def test_a_deadline_closes_the_batch_before_the_window_does() -> None:
    batcher = a_batcher(WINDOW, slow_surface(0.02))
    batcher.add(an_item(received_at=NOW, deadline_at=NOW + 0.07), NOW)
    due_at = batcher.next_due(NOW, BUSY)
    assert due_at < NOW + 0.07 - 0.02
    batch = closed(batcher, due_at, BUSY)
    assert batch is not None
    assert batch.closed_by is ClosedBy.DEADLINE


def test_a_frame_that_cannot_make_it_behind_the_backlog_costs_no_device_time() -> None:
    batcher = a_batcher(WINDOW, slow_surface(0.02))
    batcher.add(an_item("hasty", received_at=NOW, deadline_at=NOW + 0.07), NOW)
    batcher.add(an_item("calm", received_at=NOW), NOW)
    view = DeviceView(slot_free=True, compute_idle=False, backlog_s=0.5)
    decision = batcher.next(NOW + 0.05, view)
    assert [item.stream for item in decision.expired] == ["hasty"]
    assert streams_of(decision.batch) == ["calm"]


def test_a_batch_of_nothing_but_expired_frames_is_no_batch() -> None:
    batcher = a_batcher(WINDOW, slow_surface(0.02))
    batcher.add(an_item(received_at=NOW, deadline_at=NOW + 0.07), NOW)
    decision = batcher.next(NOW + 0.06, BUSY)
    assert decision.batch is None
    assert len(decision.expired) == 1
    assert not len(batcher)


def test_frames_expire_while_no_slot_is_free() -> None:
    batcher = a_batcher(WINDOW)
    batcher.add(an_item("hasty", received_at=NOW, deadline_at=NOW + 0.07), NOW)
    batcher.add(an_item("calm", received_at=NOW), NOW)
    assert batcher.next_due(NOW, FULLY_BUSY) == NOW + 0.07
    assert batcher.expire(NOW + 0.069) == []
    assert [item.stream for item in batcher.expire(NOW + 0.07)] == ["hasty"]
    assert len(batcher) == 1


# -- order and choice ----------------------------------------------------------------------------


def test_earliest_due_leaves_first_across_streams() -> None:
    batcher = a_batcher(INTERVAL)
    for index in range(SMALL.max_batch):
        batcher.add(an_item(f"slow{index}", received_at=NOW, interval_s=1.0), NOW)
    batcher.add(an_item("fast", received_at=NOW, interval_s=1 / 60), NOW)
    assert streams_of(closed(batcher, NOW, BUSY))[0] == "fast"


def test_a_stream_keeps_its_order_when_its_window_shrinks() -> None:
    batcher = a_batcher(INTERVAL)
    batcher.add(an_item("cam", 0, received_at=NOW), NOW)  # interval unknown: the longest wait
    for index in range(2 * SMALL.max_batch):
        batcher.add(an_item("cam", index + 1, received_at=NOW, interval_s=0.02), NOW)
    seqs: list[int] = []
    while (batch := closed(batcher, NOW + 1, BUSY)) is not None:
        seqs.extend(item.frame.seq for item in batch.items)
    assert seqs == list(range(2 * SMALL.max_batch + 1))


def test_buckets_and_routes_never_share_a_batch() -> None:
    batcher = a_batcher()
    batcher.add(an_item("a", bucket=SMALL), NOW)
    batcher.add(an_item("b", bucket=LARGE), NOW)
    batcher.add(an_item("c", bucket=SMALL, route="other"), NOW)
    batches = [closed(batcher, NOW + 1, BUSY) for _ in range(3)]
    assert sorted(streams_of(batch) for batch in batches) == [["a"], ["b"], ["c"]]
    assert closed(batcher, NOW + 1, BUSY) is None


def test_the_queue_that_is_due_soonest_goes_first() -> None:
    batcher = a_batcher()
    batcher.add(an_item("late", received_at=NOW + 0.01, bucket=SMALL), NOW)
    batcher.add(an_item("early", received_at=NOW, bucket=LARGE), NOW)
    assert streams_of(closed(batcher, NOW + 1, BUSY)) == ["early"]


# -- flush ---------------------------------------------------------------------------------------


def test_drain_closes_everything_and_says_so() -> None:
    batcher = a_batcher()
    for index in range(SMALL.max_batch + 1):
        batcher.add(an_item(f"cam{index}"), NOW)
    batcher.flush(ClosedBy.DRAIN)
    assert batcher.next_due(NOW, BUSY) == NOW
    reasons = []
    while (batch := closed(batcher, NOW, BUSY)) is not None:
        reasons.append(batch.closed_by)
    assert reasons == [ClosedBy.DRAIN, ClosedBy.DRAIN]


def test_revoke_closes_only_queues_that_hold_the_partition() -> None:
    batcher = a_batcher()
    batcher.add(an_item("gone", partition=3, bucket=SMALL), NOW)
    batcher.add(an_item("stays", partition=4, bucket=LARGE), NOW)
    batcher.flush(ClosedBy.REVOKE, frozenset({("frames", 3)}))
    batch = closed(batcher, NOW, BUSY)
    assert streams_of(batch) == ["gone"]
    assert batch is not None
    assert batch.closed_by is ClosedBy.REVOKE
    assert closed(batcher, NOW, BUSY) is None


def test_a_flush_is_over_when_what_waited_then_has_left() -> None:
    batcher = a_batcher()
    batcher.add(an_item("a"), NOW)
    batcher.flush(ClosedBy.REVOKE, frozenset({("frames", 0)}))
    assert closed(batcher, NOW, BUSY) is not None
    batcher.add(an_item("b"), NOW)
    assert closed(batcher, NOW, BUSY) is None


# -- solo ----------------------------------------------------------------------------------------

EMPTY = DeviceView(slot_free=True, compute_idle=True, empty=True)


def test_a_suspect_leaves_alone_and_at_once_when_the_device_is_empty() -> None:
    batcher = a_batcher()
    for index in range(SMALL.max_batch):
        batcher.add(an_item(f"cam{index}"), NOW)
    batcher.add(an_item("suspect", solo=True), NOW)
    assert batcher.next_due(NOW, EMPTY) == NOW
    batch = closed(batcher, NOW, EMPTY)
    assert streams_of(batch) == ["suspect"]
    assert batch is not None
    assert batch.closed_by is ClosedBy.SOLO
    following = closed(batcher, NOW, EMPTY)
    assert following is not None
    assert len(following.items) == SMALL.max_batch


@pytest.mark.parametrize("view", [IDLE, BUSY, FULLY_BUSY])
def test_while_a_suspect_waits_for_the_device_to_empty_nothing_else_starts(
    view: DeviceView,
) -> None:
    batcher = a_batcher()
    for index in range(2 * SMALL.max_batch):
        batcher.add(an_item(f"cam{index}"), NOW)
    batcher.add(an_item("suspect", solo=True), NOW)
    batcher.flush(ClosedBy.DRAIN)
    assert closed(batcher, NOW + 9, view) is None
    assert batcher.next_due(NOW + 9, view) == math.inf
    assert len(batcher) == 2 * SMALL.max_batch + 1
    assert batcher.depths()[0].waiting == 2 * SMALL.max_batch + 1


def test_several_suspects_leave_one_by_one_in_order() -> None:
    batcher = a_batcher()
    for index in range(3):
        batcher.add(an_item(f"cam{index}", solo=True), NOW)
    assert [streams_of(closed(batcher, NOW, EMPTY)) for _ in range(3)] == [
        ["cam0"], ["cam1"], ["cam2"],
    ]  # fmt: skip
    assert closed(batcher, NOW, EMPTY) is None
    assert not len(batcher)


def test_a_suspect_expires_like_anybody() -> None:
    batcher = a_batcher()
    batcher.add(an_item("late", solo=True, deadline_at=NOW + 1.0), NOW)
    batcher.add(an_item("patient", solo=True), NOW)
    assert batcher.next_due(NOW, BUSY) == NOW + 1.0
    assert batcher.expire(NOW + 0.5) == []
    assert [item.stream for item in batcher.expire(NOW + 1.0)] == ["late"]
    assert streams_of(closed(batcher, NOW + 1.0, EMPTY)) == ["patient"]


# -- limit ---------------------------------------------------------------------------------------


def test_a_limit_makes_batches_smaller_until_it_is_lifted() -> None:
    batcher = a_batcher()
    for index in range(3 * SMALL.max_batch):
        batcher.add(an_item(f"cam{index}"), NOW)
    batcher.limit("default", SMALL.name, 1)
    assert batcher.depths()[0].limit == 1
    for _ in range(3):
        batch = closed(batcher, NOW, BUSY)
        assert batch is not None
        assert (len(batch.items), batch.closed_by) == (1, ClosedBy.FULL)
    batcher.limit("default", SMALL.name, SMALL.max_batch)
    batch = closed(batcher, NOW, BUSY)
    assert batch is not None
    assert len(batch.items) == SMALL.max_batch


# -- properties ----------------------------------------------------------------------------------

policies = st.sampled_from([WINDOW, INTERVAL, FixedPolicy(0.2)])
steps = st.lists(
    st.tuples(
        st.floats(0, 0.08),  # time that passes
        st.integers(0, 6),  # stream
        st.sampled_from([SMALL, LARGE]),
        st.none() | st.floats(0.001, 0.5),  # time to live
        st.none() | st.floats(0.005, 0.3),  # interval
        st.booleans(),  # slot free
        st.booleans(),  # compute idle
    ),
    max_size=60,
)


@given(policies, steps)
def test_every_item_leaves_once_in_stream_order_and_nothing_happens_before_it_is_due(
    policy: WindowPolicy,
    steps: list[tuple[float, int, object, float | None, float | None, bool, bool]],
) -> None:
    batcher = a_batcher(policy)
    now = NOW
    added: list[Item] = []
    left: list[Item] = []

    def take(now: float, view: DeviceView) -> None:
        left.extend(batcher.expire(now))
        while True:
            decision = batcher.next(now, view)
            left.extend(decision.expired)
            if decision.batch is not None:
                items = decision.batch.items
                assert 1 <= len(items) <= decision.batch.bucket.max_batch
                assert all(item.bucket is decision.batch.bucket for item in items)
                left.extend(items)
            elif not decision.expired:
                break

    for passed, stream, bucket, ttl, interval, slot_free, compute_idle in steps:
        view = DeviceView(slot_free, slot_free and compute_idle)
        due_at = batcher.next_due(now, view)
        between = min(now + passed, math.nextafter(due_at, 0))
        if between > now:  # nothing may happen before the due instant
            assert batcher.expire(between) == []
            assert batcher.next(between, view).batch is None
        now += passed
        item = an_item(
            f"cam{stream}",
            len(added),
            received_at=now,
            bucket=bucket,
            deadline_at=math.inf if ttl is None else now + ttl,
            interval_s=interval,
        )
        added.append(item)
        batcher.add(item, now)
        take(now, view)
        if slot_free:
            for depth in batcher.depths():
                assert depth.waiting < SMALL.max_batch  # full closes at once
            assert batcher.next_due(now, view) > now

    batcher.flush(ClosedBy.DRAIN)
    take(now, BUSY)
    assert not len(batcher)
    assert sorted(i.attempt_id for i in left) == [i.attempt_id for i in added]
    for bucket in (SMALL, LARGE):
        for stream in {item.stream for item in added}:
            seqs = [
                item.frame.seq
                for item in left
                if item.stream == stream and item.bucket is bucket and item.deadline_at == math.inf
            ]
            assert seqs == sorted(seqs)


@given(policies, steps)
def test_no_item_waits_past_its_window_while_a_slot_is_free(
    policy: WindowPolicy,
    steps: list[tuple[float, int, object, float | None, float | None, bool, bool]],
) -> None:
    longest = max(policy.wait_s(None, 0.0), policy.wait_s(0.3, 0.0))
    batcher = a_batcher(policy)
    now = NOW
    waiting: dict[int, Item] = {}
    for index, (passed, stream, bucket, _, interval, slot_free, compute_idle) in enumerate(steps):
        now += passed
        item = an_item(
            f"cam{stream}",
            index,
            received_at=now,
            bucket=bucket,
            interval_s=interval,
        )
        batcher.add(item, now)
        waiting[item.attempt_id] = item
        while (batch := batcher.next(now, DeviceView(slot_free, compute_idle)).batch) is not None:
            for left in batch.items:
                del waiting[left.attempt_id]
        if slot_free:
            assert all(now < w.received_at + longest for w in waiting.values())
