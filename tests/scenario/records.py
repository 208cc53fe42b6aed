"""Records that are no frames, are too much, or come twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgpack

from schemas.errors import Reason
from schemas.frame import Encoding
from schemas.settings import LimitSettings
from tests.builders_pictures import jpeg, many_scans, picture, sized_png
from tests.integration.kit import envelope
from tests.scenario.dead_letters import dead_letter_values
from tests.scenario.feed import feed
from tests.scenario.lane import CROWDED, FAILS, UNREADABLE
from tests.scenario.oracle import Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage

LIMITS = LimitSettings(max_record_bytes=64 * 1024, max_pixels=1_000_000, max_result_bytes=8 * 1024)


def _at_level(level: int) -> bytes:
    return envelope("poisoner", 0, meta={"level": str(level)})


def poison() -> Mapping[Reason, bytes]:
    """One record of every kind that can never succeed."""
    truncated = jpeg(picture(64, 48))[:30]
    return {
        Reason.EMPTY_RECORD: b"",
        Reason.RECORD_TOO_LARGE: bytes(65 * 1024),
        Reason.BAD_ENVELOPE: b"\x81\xa1",
        Reason.UNSUPPORTED_VERSION: msgpack.packb({"v": 9}),
        Reason.UNSUPPORTED_ENCODING: b"%PDF-1.7\n" + bytes(40),
        Reason.ENCODING_MISMATCH: envelope("poisoner", 0, encoding=Encoding.PNG),
        Reason.TRUNCATED_HEADER: truncated,
        Reason.BAD_HEADER: sized_png(1 << 31, 1),
        Reason.ZERO_SIZE: sized_png(0, 10),
        Reason.TOO_MANY_PIXELS: sized_png(1_001, 1_000),
        Reason.TOO_MANY_SCANS: many_scans(101),
        Reason.DECODE_FAILED: _at_level(UNREADABLE),
        Reason.INFERENCE_FAILED: _at_level(FAILS),
        Reason.RESULT_TOO_LARGE: _at_level(CROWDED),
    }


async def poisoned(rig: Rig, *, per_kind: int) -> Verdict:
    """One record in a hundred of every kind of poison: each becomes a dead letter with its reason
    and its bytes untouched, and no neighbour pays for it."""
    stage = await Stage.build(rig, Plan(pace_ms=5.0, limits=LIMITS))
    oracle, kinds = Oracle(stage), poison()
    frames = per_kind * (100 - len(kinds))
    async with stage.worker() as worker:
        async with feed(stage) as feeding:
            for _ in range(per_kind):
                for n, value in enumerate(kinds.values()):
                    await feeding.send((100 - len(kinds)) // len(kinds))
                    await feeding.put(f"poisoner-{n}".encode(), value)
                await feeding.send((100 - len(kinds)) % len(kinds))
        await oracle.until_all()
        await oracle.until_committed()
        await worker.drained()
    verdict = await oracle.verdict(allowed=0, dead_letters=per_kind * len(kinds))
    expected = {reason.value: per_kind for reason in kinds} | {"ok": frames}
    assert dict(verdict.statuses) == expected, f"{dict(verdict.statuses)}"
    values = Counter(await dead_letter_values(stage))
    assert values == Counter(dict.fromkeys(kinds.values(), per_kind)), "bytes were changed"
    return verdict


async def oversized(rig: Rig, *, every: int, count: int) -> Verdict:
    """Results that the output topic refuses: each becomes a dead letter, its neighbours do not."""
    stage = await Stage.build(rig, Plan(pace_ms=5.0, output={"max.message.bytes": "6000"}))
    oracle = Oracle(stage)
    async with stage.worker() as worker:
        async with feed(stage) as feeding:
            for _ in range(count):
                await feeding.send(every - 1)
                await feeding.send(1, level=CROWDED)
        await oracle.until_all()
        await oracle.until_committed()
        await worker.drained()
    verdict = await oracle.verdict(allowed=0, dead_letters=count)
    assert dict(verdict.statuses) == {
        "ok": count * (every - 1), Reason.RESULT_TOO_LARGE.value: count
    }  # fmt: skip
    return verdict


async def sent_twice(rig: Rig, *, count: int) -> Verdict:
    """A producer that repeats itself: every record is answered, for each has an offset of its
    own; whoever wants each frame once has `seq` to tell by."""
    stage = await Stage.build(rig, Plan(pace_ms=5.0))
    oracle = Oracle(stage)
    async with stage.worker() as worker:
        async with feed(stage) as feeding:
            for seq in range(count):
                frame = envelope("twin", seq)
                for _ in range(2 if seq % 3 == 0 else 1):
                    await feeding.put(b"twin", frame)
                await feeding.send(5)
        await oracle.until_all()
        await worker.drained()
    return await oracle.verdict(allowed=0)
