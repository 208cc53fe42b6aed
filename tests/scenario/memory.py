"""A device whose memory runs out, in one stage and then in the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import get_args

from pipeline import metrics as m
from tests.fakes.memory import ShortMemory, Starved
from tests.fakes.pace import Pace
from tests.integration.kit import fake_machinery, running
from tests.scenario.feed import feed
from tests.scenario.lane import scenario_lane
from tests.scenario.oracle import DEADLINE_S, Oracle, Verdict
from tests.scenario.stage import BUCKETS, Rig, Stage
from workers.worker import Worker

PACE_MS = 5.0


async def out_of_memory(rig: Rig, *, seconds: float) -> Verdict:
    """For some seconds the decoder, and then the model, finds memory for one frame at a time.
    Batches are run in parts, the next ones are as small as they must be, and larger again once
    there is memory; nobody is blamed, and nothing is answered twice.

    Args:
        rig: where.
        seconds: how long each shortage lasts at least.
    """
    stage = await Stage.build(rig)
    pace = rig.folder / "own-pace"
    Pace(PACE_MS).write(pace)
    lane = scenario_lane(pace)
    memory, oracle, recovery_s = ShortMemory(lane), Oracle(stage), 0.0
    # Inside this process, so that its memory can be taken and given back.
    async with running(Worker(stage.settings, fake_machinery(stage.settings, lane))) as worker:
        async with feed(stage, per_second=60.0):
            await oracle.until_more(100)
            for starved in get_args(Starved):
                memory.stage = starved
                await _until(lambda: min(_limits(stage, worker)) == memory.fits)
                assert await oracle.look()
                recovery_s = max(recovery_s, await oracle.until_more())
                await _until(lambda: max(_limits(stage, worker)) == memory.fits)
                await asyncio.sleep(seconds)
                memory.stage = None
                await _until(lambda: min(_limits(stage, worker)) > memory.fits)
            assert worker.metrics.total(m.OUT_OF_MEMORY) >= 2 * len(BUCKETS)
        await oracle.until_all()
        await oracle.until_committed()
    verdict = await oracle.verdict(allowed=0, recovery_s=recovery_s)
    assert dict(verdict.statuses) == {"ok": verdict.frames}
    return verdict


def _limits(stage: Stage, worker: Worker) -> list[float]:
    """Most frames per batch now, of every bucket."""
    route = stage.route.name
    return [worker.metrics.value(m.BATCH_LIMIT, route=route, bucket=b.name) for b in BUCKETS]


async def _until(happened: Callable[[], bool]) -> None:
    """A cap waits some tens of seconds before it tries more again."""
    async with asyncio.timeout(DEADLINE_S):
        while not happened():
            await asyncio.sleep(0.05)
