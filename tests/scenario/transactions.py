"""Exactly once, through the death and the return of a worker in the middle of a transaction."""

from __future__ import annotations

import signal
import time

from schemas.settings import FlowSettings
from tests.fakes.faulty_worker import FATAL_ONE, POINTS, faulty
from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage

INSIDE = 80
"""Most records inside at once, and so in a transaction."""
LET_GO = ("transaction_fenced", "offset_moved_by_another")
"""The broker refuses its commit; or it has slept past its own time-out, too, and looks first."""


async def killed_inside(rig: Rig, *, times: int) -> Verdict:
    """Each worker is killed in its third transaction: with the answers in and the offset not, with
    both in and the commit not asked for, with the commit done and not noticed. The next one takes
    over, and readers of what is committed see every answer once.

    Args:
        rig: where; its guarantee is exactly once.
        times: how often at each of the three points.
    """
    stage = await Stage.build(rig, Plan(flow=FlowSettings(max_items=INSIDE)))
    oracle, recovery_s = Oracle(stage), 0.0
    async with feed(stage, per_second=100.0) as feeding:
        killed_at: float | None = None
        for point in POINTS * times:
            # More than three transactions hold.
            await feeding.send((FATAL_ONE + 1) * INSIDE)
            await feeding.settle()
            async with stage.worker(command=faulty(point, signal.SIGKILL)) as worker:
                # It commits two transactions, so there is something new even of one that is dead.
                await oracle.until_more()
                if killed_at is not None:
                    recovery_s = max(recovery_s, time.monotonic() - killed_at)
                assert await worker.ended() == -signal.SIGKILL
                killed_at = time.monotonic()
            assert await oracle.look()
            assert oracle.answered < oracle.sent, "it was idle: the kill shows nothing"
    async with stage.worker() as worker:
        await oracle.until_all()
        await oracle.until_committed()
        await worker.drained()
    return await oracle.verdict(allowed=0, recovery_s=recovery_s)


async def zombie_inside(rig: Rig, *, frames: int) -> Verdict:
    """A worker is stopped with its answers and its offset in an open transaction, only the commit
    missing. Another one takes over and commits all, and more; then the first goes on and asks for
    its commit. It is fenced: the group's offsets do not move, and nothing is answered twice.

    Args:
        rig: where; its guarantee is exactly once.
        frames: how many it is given beyond those of its first transactions; and again while it
            sleeps.
    """
    stage = await Stage.build(rig, Plan(flow=FlowSettings(max_items=INSIDE)))
    oracle = Oracle(stage)
    async with feed(stage) as feeding:
        await feeding.send((FATAL_ONE + 1) * INSIDE + frames)
        await feeding.settle()
        async with stage.worker(command=faulty("offsets", signal.SIGSTOP)) as zombie:
            await zombie.until_stopped()
            stopped_at = time.monotonic()
            assert await oracle.look()
            assert sum((await oracle.committed()).values()) < oracle.sent, "it had nothing open"
            # So that nobody else's commit can be mistaken for the zombie's own.
            await feeding.send(frames)
            await feeding.settle()
            async with stage.worker() as heir:
                await oracle.until_more()
                recovery_s = time.monotonic() - stopped_at
                await oracle.until_all()
                await oracle.until_committed()
                before = await oracle.committed()
                zombie.send(signal.SIGCONT)
                await zombie.until_said_any(LET_GO)
                await zombie.until_said("partitions_assigned", times=2)
                assert await oracle.committed() == before, "the zombie moved the group's offsets"
                assert sum(before.values()) == oracle.sent
                await zombie.drained()
                await heir.drained()
    return await oracle.verdict(allowed=0, recovery_s=recovery_s)
