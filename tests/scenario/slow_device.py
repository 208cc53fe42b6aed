"""A device ten times slower than the input: memory stays flat, and the worker stays a member."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from schemas.settings import FlowSettings
from tests.scenario.feed import feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import PATIENT_MS, Plan, Rig, Stage
from tests.scenario.worker_process import WorkerProcess

PER_SECOND = 200.0
SLOW_BATCH_MS = 400.0
"""Eight frames in it: 20 a second, a tenth of what comes."""
FAST_BATCH_MS = 5.0
MAX_ITEMS, MAX_POLL_MS = 1_200, 10_000
"""From full to low water is 300 items, fifteen seconds at the slow pace: longer than the group
allows between two polls, and that is long enough for a busy machine."""
SETTLE_S = 20.0
"""The first seconds of slowness, in which what may be in flight fills up."""
MAX_GROWTH_MIB = 48.0
SAMPLE_S = 1.0


async def slow_device(rig: Rig, *, seconds: float, samples: Path | None = None) -> Verdict:
    """The device slows down for a while, with more coming than it can do; then it catches up.

    Args:
        rig: where.
        seconds: how long it is slow.
        samples: where the memory's course is written to, as JSON.
    """
    plan = Plan(
        pace_ms=FAST_BATCH_MS,
        flow=FlowSettings(max_items=MAX_ITEMS),
        kafka={"max_poll_interval_ms": MAX_POLL_MS, "session_timeout_ms": PATIENT_MS},
    )
    stage = await Stage.build(rig, plan)
    oracle = Oracle(stage)
    async with stage.worker() as worker:
        async with feed(stage, per_second=PER_SECOND) as feeding:
            await oracle.until_more(500)
            stage.pace(SLOW_BATCH_MS)
            assert await oracle.look()
            # Twice what it can do, and then it is held: it cannot keep up, whoever is kept waiting.
            more = 2 * MAX_ITEMS + round(2 * PER_SECOND / 10 * seconds)
            stage.gate(oracle.sent + more)
            await feeding.send(more + 2 * MAX_ITEMS)
            await feeding.settle()
            memory = await _watch(worker, oracle, seconds)
            assert oracle.sent - oracle.answered > MAX_ITEMS, "the device kept up"
        stage.pace(FAST_BATCH_MS)
        stage.no_gate()
        begun = time.monotonic()
        await oracle.until_all()
        recovery_s = time.monotonic() - begun
        assert worker.times_said("partitions_assigned") == 1, "it left its group"
        await worker.drained()
    if samples is not None:
        await asyncio.to_thread(samples.write_text, json.dumps(memory))
    flat = [mib for at_s, mib, _ in memory if at_s >= min(SETTLE_S, seconds / 2)]
    growth = max(flat) - flat[0]
    assert growth < MAX_GROWTH_MIB, f"memory grew by {growth:.0f} MiB"
    return await oracle.verdict(allowed=0, recovery_s=recovery_s)


async def _watch(
    worker: WorkerProcess, oracle: Oracle, seconds: float
) -> list[tuple[float, float, int]]:
    """Seconds, MiB, records that wait in the log or inside; one row a second."""
    rows: list[tuple[float, float, int]] = []
    begun = time.monotonic()
    while (at_s := time.monotonic() - begun) < seconds:
        await oracle.look()
        rows.append((at_s, worker.rss_bytes / 2**20, oracle.sent - oracle.answered))
        await asyncio.sleep(SAMPLE_S)
    return rows
