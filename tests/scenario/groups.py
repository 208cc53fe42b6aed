"""Workers that come and go, and drains that take longer than the group waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from pipeline import metrics as m
from schemas.settings import Settings
from tests.fakes.pace import Pace
from tests.integration.kit import fake_machinery
from tests.scenario.feed import feed
from tests.scenario.lane import scenario_lane
from tests.scenario.oracle import DEADLINE_S, Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage
from workers.worker import Worker

EVERY_S = 2.0
"""How often a worker joins or leaves in the storm."""
STORMY = 3
"""So many assignments at least, of the worker that stays."""


async def storm(rig: Rig, *, seconds: float) -> Verdict:
    """Every two seconds a worker joins or the eldest guest leaves, while one stays all along: for
    so many seconds, and until the group has changed under it `STORMY` times."""
    stage = await Stage.build(rig)
    oracle, guests = Oracle(stage), Guests(stage)
    async with stage.worker() as host:
        async with feed(stage, per_second=100.0):
            await oracle.until_more()
            until_at = time.monotonic() + seconds
            give_up_at = until_at + DEADLINE_S
            while time.monotonic() < until_at or host.times_said("partitions_assigned") < STORMY:
                assert time.monotonic() < give_up_at, "there was no storm"
                await asyncio.sleep(EVERY_S)
                if len(guests.here) < 2:
                    guests.join()
                else:
                    await guests.leave()
            assert await oracle.look()
            recovery_s = await oracle.until_more()
        while guests.here:
            await guests.leave()
        await oracle.until_all()
        await host.drained()
    # A revoke settles and commits within its budget, so nobody should have to repeat anything; but
    # on a machine this busy a member may lose its session, and then its next one does.
    return await oracle.verdict(recovery_s=recovery_s)


async def long_drain(rig: Rig, *, group_waits: bool) -> Verdict:
    """A worker needs longer to settle a partition that is taken away than it has. Either its own
    budget ends first, and it gives back what it could not settle; or the group does not wait
    (`group_waits` False), gives the partitions to another one and refuses its commit. Settings
    that allow the latter are refused, so this worker is made past their check."""
    if group_waits:
        kafka, lifecycle = {"rebalance_timeout_ms": 12_000}, {"revoke_timeout_ms": 4_000}
    else:
        kafka, lifecycle = {"rebalance_timeout_ms": 3_000}, {"revoke_timeout_ms": 25_000}
    short = {"drain_timeout_ms": 2_500}
    stage = await Stage.build(
        rig, Plan(kafka=kafka, lifecycle=short | {"revoke_timeout_ms": 2_500})
    )
    slow = rig.folder / "slow-pace"
    Pace(10.0).write(slow)
    budget = msgspec.structs.replace(stage.settings.lifecycle, **lifecycle, drain_timeout_ms=20_000)
    settings = msgspec.structs.replace(stage.settings, lifecycle=budget)
    oracle = Oracle(stage)
    async with feed(stage) as feeding, running(settings, slow) as first:
        await feeding.send(300)
        await oracle.until_more(50)
        Pace(8_000.0).write(slow)
        await feeding.send(300)
        await feeding.settle()
        async with asyncio.timeout(DEADLINE_S):
            while first.metrics.value(m.RUNNING_BATCHES) < 2:
                await asyncio.sleep(0.05)
        begun = time.monotonic()
        async with stage.worker() as second:
            await oracle.until_more()
            recovery_s = time.monotonic() - begun
            Pace(10.0).write(slow)
            await oracle.until_all()
            await oracle.until_committed()
            await second.drained()
    assert first.metrics.value(m.LATE_COMPLETIONS) or first.metrics.value(
        m.COMMITS, outcome="failed"
    ), "it settled in time: the drain was not long"
    return await oracle.verdict(allowed=2 * settings.flow.max_items, recovery_s=recovery_s)


class Guests:
    """Workers inside this process, for a group of many at little cost."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._pace = stage.rig.folder / "guest-pace"
        Pace(15.0).write(self._pace)
        self.here: list[tuple[Worker, asyncio.Task[int]]] = []

    def join(self) -> None:
        """One more, without waiting for its partitions."""
        worker = _a_worker(self._stage.settings, self._pace)
        self.here.append((worker, asyncio.ensure_future(worker.run())))

    async def leave(self) -> None:
        """The eldest drains and goes."""
        worker, task = self.here.pop(0)
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            assert await task == 0


@asynccontextmanager
async def running(settings: Settings, pace: Path) -> AsyncIterator[Worker]:
    """A worker inside this process, with partitions; drained at the end."""
    worker = _a_worker(settings, pace)
    task = asyncio.ensure_future(worker.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not worker.assigned:
                assert not task.done(), f"the worker ended with {task.result()}"
                await asyncio.sleep(0.05)
        yield worker
    finally:
        worker.request_stop()
        async with asyncio.timeout(DEADLINE_S):
            code = await task
    assert code == 0


def _a_worker(settings: Settings, pace: Path) -> Worker:
    return Worker(settings, fake_machinery(settings, scenario_lane(pace)))
