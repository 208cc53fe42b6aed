"""A device that runs out of memory costs time, and no frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline import metrics as m
from schemas.result import Status
from tests.assertions import each_once, in_offset_order
from tests.fakes.lane import a_lane
from tests.fakes.memory import ShortMemory, Starved
from tests.integration.kit import (
    Sent,
    a_bench,
    a_jpeg,
    fake_machinery,
    running,
    sources,
    until,
)
from workers.worker import Worker

pytestmark = pytest.mark.broker

FRAMES = 60


@pytest.mark.parametrize("stage", ["decode", "infer"])
async def test_every_frame_is_answered_by_a_device_with_memory_for_one(
    broker: str, unique: Callable[[str], str], stage: Starved
) -> None:
    bench = await a_bench(broker, unique, partitions=2)
    lane = a_lane()
    ShortMemory(lane, stage=stage)
    sent = await bench.send(
        *(Sent(a_jpeg(), key=f"cam-{n % 6}".encode(), partition=n % 2) for n in range(FRAMES))
    )
    worker = Worker(bench.settings, fake_machinery(bench.settings, lane))
    async with running(worker):
        results = await bench.results(FRAMES)
        where = {"route": bench.route.name, "bucket": "small"}
        await until(lambda: worker.metrics.value(m.BATCH_LIMIT, **where) == 1)
    each_once(sources(results), sent)
    in_offset_order(results)
    assert {result.status for result in results} == {Status.OK}
    tried_again = [result for result in results if result.attempts > 1]
    assert tried_again
    assert all(result.batch is not None and result.batch.size > 1 for result in tried_again)
    assert worker.metrics.value(m.OUT_OF_MEMORY, **where) >= 1
