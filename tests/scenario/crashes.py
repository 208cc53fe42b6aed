"""Workers that die, are told to end, or sleep past their session."""

from __future__ import annotations

import signal
import time

import msgspec

from schemas.settings import FlowSettings
from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage

WORK = 40
"""Answers to wait for before a process is told: it must be in the middle of its work."""
GATE = FlowSettings().max_items + 2 * WORK
"""New frames that it may infer by then, so that there is work left whenever it is told. Answers may
wait for earlier ones that are not inferred yet, but never more than may be inside: so this many
frames give `WORK` answers, whichever they are."""
MOST_IN_BATCH = 8
"""The batch before the gate may go beyond it."""


async def kill_nine(
    rig: Rig, *, times: int, per_second: float = 150.0, real_model: bool = False
) -> Verdict:
    """The only worker is killed in the middle of its work, again and again; each time a new one
    takes over. Duplicates: at most the answers at or above the offset that was committed."""
    stage = await Stage.build(rig, Plan(real_model=real_model))
    oracle, allowed, recovery_s = Oracle(stage), 0, 0.0
    async with feed(stage, per_second=per_second) as feeding:
        killed_at: float | None = None
        again = 0
        for _ in range(times):
            # What was answered and not committed comes first, and is nothing new.
            stage.gate(again + GATE)
            await feeding.send(again + GATE + MOST_IN_BATCH)
            await feeding.settle()
            before = oracle.answered
            async with stage.worker() as worker:
                await oracle.until_more(than=before)
                if killed_at is not None:
                    recovery_s = max(recovery_s, time.monotonic() - killed_at)
                await oracle.until_more(WORK, than=before)
                worker.send(signal.SIGKILL)
                killed_at = time.monotonic()
                assert await worker.ended() == -signal.SIGKILL
            assert await oracle.look()
            assert oracle.answered < oracle.sent, "it was idle: the kill shows nothing"
            again = oracle.above(await oracle.committed())
            allowed += again
    stage.no_gate()
    async with stage.worker() as worker:
        await oracle.until_all()
        await worker.drained()
    return await oracle.verdict(allowed=allowed, recovery_s=recovery_s)


async def sigterm(rig: Rig, *, times: int) -> Verdict:
    """A worker under load is told to end: it settles what it has, and nothing is answered twice."""
    stage = await Stage.build(rig)
    oracle, recovery_s = Oracle(stage), 0.0
    async with feed(stage, per_second=150.0) as feeding:
        told_at: float | None = None
        for _ in range(times):
            stage.gate(GATE)
            # More than it has taken in by then, so that something is left for the next one.
            await feeding.send(GATE + MOST_IN_BATCH + stage.settings.flow.max_items)
            await feeding.settle()
            assert await oracle.look()
            before = oracle.answered
            async with stage.worker() as worker:
                await oracle.until_more(than=before)
                if told_at is not None:
                    recovery_s = max(recovery_s, time.monotonic() - told_at)
                await oracle.until_more(WORK, than=before)
                told_at = time.monotonic()
                worker.send(signal.SIGTERM)
                await worker.until_said("worker_state", state="draining")
                assert await oracle.look()
                assert oracle.answered < oracle.sent, "it was idle: the drain shows nothing"
                stage.no_gate()
                assert await worker.ended() == 0
                assert worker.said("drained", unsettled=0)
                assert worker.said("worker_state", state="stopped")
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
        stage.gate(GATE)
        await feeding.send(1_500)
        await feeding.settle()
        await oracle.until_more(WORK)
        sleeper.send(signal.SIGSTOP)
        await sleeper.until_stopped()
        stopped_at = time.monotonic()
        stage.no_gate()
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
