"""Wall clocks that jump by ten minutes, the worker's and the cameras'."""

from __future__ import annotations

import signal
import time

from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import PATIENT_MS, Plan, Rig, Stage
from tests.scenario.worker_main import STEP_NS

TTL_MS = 500_000
"""Less than a clock jumps, and more than a frame may wait for its turn."""


async def clock_steps(rig: Rig, *, count: int) -> Verdict:
    """The worker's clock jumps forth, back and further back while frames with a time to live
    flow: nothing happens, for it is read once, at the start. Then the cameras' clocks jump: a
    stamp from the future counts as receipt, a stamp ten minutes old has expired."""
    stage = await Stage.build(rig, Plan(kafka={"session_timeout_ms": PATIENT_MS}))
    oracle = Oracle(stage)
    step_us = 0

    def cameras_us() -> int:
        return time.time_ns() // 1000 + step_us

    async with stage.worker() as worker:
        async with feed(stage, wall_us=cameras_us, ttl_ms=TTL_MS) as feeding:
            for steps, way in enumerate((None, signal.SIGUSR1, signal.SIGUSR2, signal.SIGUSR2)):
                if way is not None:
                    worker.send(way)
                    await worker.until_said("clock_stepped", minutes=(0, 10, 0, -10)[steps])
                await feeding.send(count)
                await oracle.until_all()
            step_us = STEP_NS // 1000
            await feeding.send(count)
            await oracle.until_all()
            before = await oracle.verdict()
            assert dict(before.statuses) == {"ok": 5 * count}
            step_us = -STEP_NS // 1000
            await feeding.send(count)
            await oracle.until_all()
        assert worker.times_said("partitions_assigned") == 1, "timers followed the wall clock"
        await worker.drained()
    verdict = await oracle.verdict(allowed=0)
    assert dict(verdict.statuses) == {"ok": 5 * count, "expired": count}
    return verdict
