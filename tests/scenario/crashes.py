"""Workers that die, are told to end, or sleep past their session."""

from __future__ import annotations

import signal
import time

import msgspec

from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage

WORK = 40
"""Answers to wait for before a process is told: it must be in the middle of its work."""


async def kill_nine(
    rig: Rig, *, times: int, per_second: float = 150.0, real_model: bool = False
) -> Verdict:
    """The only worker is killed in the middle of its work, again and again; each time a new one
    takes over. Duplicates: at most the answers at or above the offset that was committed."""
    stage = await Stage.build(rig, Plan(real_model=real_model))
    oracle, allowed, recovery_s = Oracle(stage), 0, 0.0
    async with feed(stage, per_second=per_second):
        killed_at: float | None = None
        for _ in range(times):
            async with stage.worker() as worker:
                await oracle.until_more()
                if killed_at is not None:
                    recovery_s = max(recovery_s, time.monotonic() - killed_at)
                await oracle.until_more(WORK)
                worker.send(signal.SIGKILL)
                killed_at = time.monotonic()
                assert await worker.ended() == -signal.SIGKILL
            assert await oracle.look()
            assert oracle.answered < oracle.sent, "it was idle: the kill shows nothing"
            allowed += oracle.above(await oracle.committed())
    async with stage.worker() as worker:
        await oracle.until_all()
        await worker.drained()
    return await oracle.verdict(allowed=allowed, recovery_s=recovery_s)


async def sigterm(rig: Rig, *, times: int) -> Verdict:
    """A worker under load is told to end: it ends in time, and nothing is answered twice."""
    stage = await Stage.build(rig)
    oracle, recovery_s = Oracle(stage), 0.0
    budget_s = stage.settings.lifecycle.drain_timeout_ms / 1e3
    async with feed(stage, per_second=150.0):
        told_at: float | None = None
        for _ in range(times):
            async with stage.worker() as worker:
                await oracle.until_more()
                if told_at is not None:
                    recovery_s = max(recovery_s, time.monotonic() - told_at)
                await oracle.until_more(WORK)
                told_at = time.monotonic()
                await worker.drained()
                # Leaving the group and the end of threads and interpreter come on top.
                assert time.monotonic() - told_at < budget_s + 20.0
                assert worker.said("worker_state", state="stopped")
            assert await oracle.look()
            assert oracle.answered < oracle.sent, "it was idle: the drain shows nothing"
    async with stage.worker() as worker:
        await oracle.until_all()
        await worker.drained()
    return await oracle.verdict(allowed=0, recovery_s=recovery_s)


async def zombie(rig: Rig, *, group_is_empty: bool) -> Verdict:
    """A worker is stopped past its session with answers that it has not committed, another one
    takes over and commits all; then the first one goes on. The group's offsets must not move,
    neither while the other is there nor (`group_is_empty`) when it has left."""
    stage = await Stage.build(rig, Plan(pace_ms=50.0))
    # The zombie commits only when its partitions are taken away: by then they are another's.
    delivery = msgspec.structs.replace(
        rig.guarantee.delivery, commit_interval_ms=600_000, commit_every=1_000_000
    )
    sleepy = msgspec.structs.replace(stage.settings, delivery=delivery)
    oracle = Oracle(stage)
    async with feed(stage) as feeding, stage.worker(sleepy) as sleeper:
        await feeding.send(1_500)
        await feeding.settle()
        await oracle.until_more(WORK)
        sleeper.send(signal.SIGSTOP)
        stopped_at = time.monotonic()
        assert await oracle.look()
        async with stage.worker() as heir:
            await oracle.until_more()
            recovery_s = time.monotonic() - stopped_at
            await oracle.until_all()
            await oracle.until_committed()
            if group_is_empty:
                await heir.drained()
            before = await oracle.committed()
            sleeper.send(signal.SIGCONT)
            await sleeper.until_said("partitions_revoked")
            assert sleeper.said("commit_of_lost_membership"), "it committed as if nothing were"
            await sleeper.until_said("partitions_assigned", times=2)
            assert await oracle.committed() == before, "the zombie moved the group's offsets"
            assert sum(before.values()) == oracle.sent
            await sleeper.drained()
    # Until it knows, the zombie goes on with what it had; each worker answers a record once.
    return await oracle.verdict(allowed=oracle.sent, recovery_s=recovery_s)
