"""Pictures that take the worker's process along: native code that crashes, or never returns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import msgspec

from schemas.errors import Reason
from schemas.settings import Settings
from tests.fakes.hostile_worker import CRASH, HANG, STUCK, Turns, supervised
from tests.integration.kit import a_jpeg
from tests.scenario.dead_letters import dead_letter_values
from tests.scenario.feed import Feed, feed
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Rig, Stage
from tests.scenario.worker_process import WorkerProcess

STAGE_TIMEOUT_MS = 10_000
"""Soon enough for a test, and more than an honest picture takes on a machine this busy."""
DEATHS_EACH = 2
"""By the first its batch falls under suspicion; by the second, alone, it is convicted."""

REASONS: Mapping[bytes, Reason] = {
    CRASH: Reason.CRASH,
    HANG: Reason.TIMEOUT,
    STUCK: Reason.TIMEOUT,
}
"""Mark of a picture → what it becomes a dead letter for."""


def hostile(mark: bytes) -> bytes:
    """A JPEG that every header reader takes, with a mark behind its end."""
    return a_jpeg() + mark


async def hostile_pictures(rig: Rig) -> Verdict:
    """Under a supervisor and in the middle of other streams' frames: a picture that crashes the
    decoder, one that hangs it, and one that hangs it and keeps the interpreter. Each costs two
    processes, no more; it becomes a dead letter, its bytes untouched, and no other frame does.
    Duplicates: at most the answers at or above the committed offset, death by death."""
    stage = await Stage.build(rig)
    oracle, turns = Oracle(stage), Turns(rig.folder)
    turns.allow(1)
    async with stage.worker(_impatient(stage.settings), command=supervised) as worker:
        async with feed(stage, per_second=50.0) as feeding:
            await oracle.until_more(50)
            deaths = [await _strike(oracle, feeding, worker, mark, turns) for mark in REASONS]
        await oracle.until_all()
        await oracle.until_committed()
        assert worker.times_said("worker_died") == DEATHS_EACH * len(REASONS)
        await worker.drained()
    verdict = await oracle.verdict(
        allowed=sum(each.allowed for each in deaths),
        recovery_s=max(each.recovery_s for each in deaths),
        dead_letters=len(REASONS),
    )
    expected = Counter(reason.value for reason in REASONS.values())
    expected["ok"] = verdict.frames - len(REASONS)
    assert dict(verdict.statuses) == dict(expected)
    # One may come twice, like any answer that was not yet committed at a death: `allowed` has it.
    assert set(await dead_letter_values(stage)) == set(map(hostile, REASONS))
    left = list((rig.folder / "journal").glob("*/*.journal"))
    assert not left, "an orderly end leaves no journal"
    return verdict


class Deaths(msgspec.Struct, frozen=True):
    """What one hostile picture cost.

    Attributes:
        allowed: answers that the next processes may repeat.
        recovery_s: from its first death to the first new answer after its last.
    """

    allowed: int
    recovery_s: float


async def _strike(
    oracle: Oracle, feeding: Feed, worker: WorkerProcess, mark: bytes, turns: Turns
) -> Deaths:
    """One hostile picture, from its sending to its dead letter and a new answer to another."""
    before, convicted = worker.times_said("worker_died"), oracle.reasons + 1
    await feeding.put(b"hostile", hostile(mark))
    allowed, died_at = 0, None
    for death in range(1, DEATHS_EACH + 1):
        await worker.until_said("worker_died", times=before + death)
        died_at = died_at or time.monotonic()
        allowed += await _repeatable(oracle, worker)
        turns.allow(1 + before + death)
    assert died_at is not None
    await oracle.until_more()
    recovery_s = time.monotonic() - died_at
    await oracle.until(lambda: oracle.reasons == convicted, "the dead letter")
    return Deaths(allowed, recovery_s)


async def _repeatable(oracle: Oracle, worker: WorkerProcess) -> int:
    """Answers at or above the committed offsets, between one process and the next."""
    assignments = worker.times_said("partitions_assigned")
    assert await oracle.look()
    above = oracle.above(await oracle.committed())
    assert worker.times_said("partitions_assigned") == assignments, "this look came too late"
    return above


def _impatient(settings: Settings) -> Settings:
    device = msgspec.structs.replace(settings.device, stage_timeout_ms=STAGE_TIMEOUT_MS)
    return msgspec.structs.replace(settings, device=device)
