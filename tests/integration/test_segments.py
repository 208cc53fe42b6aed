"""Segments of video against a broker: every frame is answered, whatever ends in the middle."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from frameloom.audit import AuditPlan, Through, audit
from frameloom.audit_report import Report
from pipeline import metrics as m
from schemas.codec import read_result
from schemas.dead_letter import FrameMark, frame_mark
from schemas.frame import Encoding
from schemas.result import ResultMessage
from schemas.settings import DeliverySettings, FlowSettings, Guarantee
from tests.builders_video import a_segment
from tests.fakes.lane import FakeModel, a_lane
from tests.integration.exact import ONCE, an_exact_bench, read_all
from tests.integration.kit import (
    DEADLINE_S,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    a_worker,
    envelope,
    fake_machinery,
    mortal,
    running,
    until,
)
from workers.worker import Worker

pytestmark = pytest.mark.broker

FRAMES = 12
SEGMENT = a_segment("mp4", FRAMES)


def a_sent(
    stream: str = "cam", seq: int = 0, *, data: bytes = SEGMENT, partition: int = 0, **keys: object
) -> Sent:
    encoding = keys.pop("encoding", Encoding.MP4)
    value = envelope(stream, seq, encoding=encoding, data=memoryview(data), **keys)
    return Sent(value, key=stream.encode(), partition=partition)


class Doomed:
    """A worker whose model stops in the middle of the second segment, and that is then cut off:
    nothing is drained, and nothing committed."""

    def __init__(self, bench: Bench) -> None:
        lane = a_lane()
        assert isinstance(lane.model, FakeModel)
        lane.model.before = self._before
        self.worker = Worker(bench.settings, fake_machinery(bench.settings, lane))
        self._left = FRAMES + 3
        self._loop = asyncio.get_running_loop()
        self._stuck = asyncio.Event()
        self._released = threading.Event()

    async def live_and_die(self) -> None:
        task = asyncio.ensure_future(self.worker.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._stuck.wait()
            await until(lambda: self.worker.metrics.total(m.ANSWERED) >= FRAMES)
        finally:
            task.cancel()
            self._released.set()
            await asyncio.wait([task])

    def _before(self, levels: list[int]) -> None:
        self._left -= len(levels)
        if self._left <= 0:
            self._loop.call_soon_threadsafe(self._stuck.set)
            self._released.wait(DEADLINE_S)


async def audited(bench: Bench) -> Report:
    """What the audit makes of the three topics, up to their ends."""
    route = bench.route
    plan = AuditPlan(
        kafka=bench.kafka, input=route.input, output=route.output, dead_letter=route.dead_letter,
        through=Through.END,
    )  # fmt: skip
    return await audit(plan, lambda _: None)


def places(results: list[ResultMessage]) -> list[tuple[int, int, int]]:
    return [(r.source.partition, r.source.offset, r.source.frame) for r in results]


async def test_segments_and_pictures_share_a_partition(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    ts = a_segment("ts", 6)
    await bench.send(
        Sent(envelope("cam", 0)),
        a_sent(seq=1, sample_every=4, captured_at_us=1_000_000, meta={"a": "b"}),
        Sent(envelope("cam", 20)),
        Sent(ts),
        a_sent(seq=40, data=a_segment("mkv", 8)[:-400], encoding=Encoding.MKV),
        Sent(envelope("cam", 60)),
    )
    worker = a_worker(bench)
    async with running(worker):
        (letter,) = await bench.dead_letters(1)
        await bench.until_committed(6)
    results = await bench.results(int(worker.metrics.total(m.ANSWERED)))
    assert places(results) == sorted(set(places(results)))
    by_offset: dict[int, list[ResultMessage]] = {}
    for result in results:
        by_offset.setdefault(result.source.offset, []).append(result)
    first = by_offset[1]
    assert [(r.seq, r.captured_at_us) for r in first] == [
        (1, 1_000_000), (5, 1_400_000), (9, 1_800_000),
    ]  # fmt: skip
    assert [(r.source.frame, r.source.frames) for r in first] == [(0, None), (1, None), (2, 3)]
    assert {(r.width, r.height, r.meta["a"]) for r in first} == {(64, 48, "b")}
    assert [r.source.frames for r in by_offset[3]] == [None] * 5 + [6]
    assert by_offset[3][0].seq == 3
    assert frame_mark(letter.headers or ()) == FrameMark(None, len(by_offset[4]))
    assert 0 < len(by_offset[4]) < 8
    assert [r.source.frames for r in by_offset[0] + by_offset[2] + by_offset[5]] == [1, 1, 1]
    assert await bench.committed() == 6
    assert worker.metrics.total(m.SEGMENTS) == 3
    report = await audited(bench)
    assert report.clean(allow_duplicates=False)
    assert (report.total.ok, report.total.dead_lettered) == (5, 1)
    assert (report.segments, report.frames) == (3, 3 + 6 + len(by_offset[4]))


@pytest.mark.parametrize(
    "flow",
    [
        FlowSettings(max_items=1, max_bytes=9 << 20, max_segments=1),
        FlowSettings(max_items=3, max_bytes=9 << 20, max_held_per_stream=1),
    ],
)
async def test_the_tightest_credits_let_every_frame_through(
    broker: str, unique: Unique, flow: FlowSettings
) -> None:
    bench = await a_bench(broker, unique, partitions=2, flow=flow)
    records = [
        a_sent(f"cam-{p}", 100 * n, partition=p) if n % 2 else Sent(a_jpeg(), partition=p)
        for n in range(4)
        for p in range(2)
    ]
    await bench.send(*records)
    async with running(a_worker(bench)):
        results = await bench.results(2 * 2 * (1 + FRAMES))
    assert len(set(places(results))) == len(results)


async def test_a_drained_worker_finishes_the_segment_it_is_in(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    await bench.send(a_sent(seq=0, data=a_segment("mp4", 60)), a_sent(seq=60))
    worker = a_worker(bench)
    async with running(worker):
        await until(lambda: worker.metrics.total(m.ANSWERED) >= 3)
    offset = await bench.committed()
    assert offset in (1, 2)
    results = await bench.everything(bench.route.output)
    assert len(results) == (60 if offset == 1 else 60 + FRAMES)


@pytest.mark.parametrize("guarantee", list(Guarantee))
async def test_a_worker_that_dies_in_mid_segment_loses_nothing(
    real_kafka: str, unique: Unique, guarantee: Guarantee
) -> None:
    once = guarantee is Guarantee.EXACTLY_ONCE
    if once:
        bench = await an_exact_bench(real_kafka, unique, delivery=ONCE)
    else:
        delivery = DeliverySettings(commit_interval_ms=50)
        bench = await a_bench(real_kafka, unique, kafka=mortal(), delivery=delivery)
    await bench.send(*[a_sent(seq=100 * n) for n in range(3)])
    await Doomed(bench).live_and_die()
    async with running(a_worker(bench)):
        await bench.until_committed(3)
    results = [
        read_result(record.value or b"") for record in await read_all(bench, bench.route.output)
    ]
    found = Counter((each.source.offset, each.source.frame) for each in results)
    report = await audited(bench)
    assert (report.total.received, report.total.ok, report.total.lost) == (3, 3, 0)
    assert report.clean(allow_duplicates=not once)
    assert set(found) == {(offset, frame) for offset in range(3) for frame in range(FRAMES)}
    if once:
        assert set(found.values()) == {1}
    else:
        assert max(found.values()) <= 2


async def test_a_partition_may_leave_in_mid_segment(real_kafka: str, unique: Unique) -> None:
    bench = await an_exact_bench(real_kafka, unique, partitions=2)
    video = a_segment("mp4", 40)
    await bench.send(
        *[a_sent(f"cam-{n % 2}", 100 * n, data=video, partition=n % 2) for n in range(12)]
    )
    first, second = a_worker(bench), a_worker(bench)
    async with running(first):
        await until(lambda: first.metrics.value(m.IN_FLIGHT) > 0)
        async with running(second):
            for partition in range(2):
                await bench.until_committed(6, partition)
    report = await audited(bench)
    assert (report.total.received, report.total.ok, report.frames) == (12, 12, 480)
    assert report.clean(allow_duplicates=False)
