"""Exactly once, through the death and the return of a worker in the middle of a transaction."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from pipeline.item import Coordinates
from schemas.codec import read_result
from schemas.settings import FlowSettings
from tests.assertions import each_once, in_offset_order
from tests.fakes.faulty_worker import POINTS, faulty
from tests.integration.exact import an_exact_bench, answers, read_all, some_frames
from tests.integration.kit import DEADLINE_S, Bench, Unique, a_worker, running
from tests.scenario.transactions import LET_GO
from tests.scenario.worker_process import worker_process

pytestmark = pytest.mark.broker


FRAMES = 300
SMALL_STEPS = FlowSettings(max_items=80)
"""No transaction holds more than may be inside, so that the third is not the last."""


async def a_bench_of_small_steps(broker: str, unique: Unique) -> Bench:
    bench = await an_exact_bench(broker, unique)
    return Bench(msgspec.structs.replace(bench.settings, flow=SMALL_STEPS))


async def until_committed(bench: Bench, offset: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await bench.committed() != offset:
            await asyncio.sleep(0.2)


async def answered_once(bench: Bench, sent: list[Coordinates]) -> None:
    each_once(await answers(bench), sent)
    in_offset_order([read_result(r.value) for r in await read_all(bench, bench.route.output)])


@pytest.mark.parametrize("point", POINTS)
async def test_kill_minus_nine_in_a_transaction(
    real_kafka: str, unique: Unique, tmp_path: Path, point: str
) -> None:
    bench = await a_bench_of_small_steps(real_kafka, unique)
    sent = await bench.send(*some_frames(FRAMES, bad_every=9))
    command = faulty(point, signal.SIGKILL)
    async with worker_process(bench.settings, tmp_path, command) as killed:
        assert await killed.ended() == -signal.SIGKILL
    before = await bench.committed()
    assert before is not None
    assert 0 < before < FRAMES, "it must die in the middle of its work"
    async with running(a_worker(bench)):
        await until_committed(bench, FRAMES)
        await answered_once(bench, sent)


async def test_a_zombie_is_fenced_and_moves_nothing(
    real_kafka: str, unique: Unique, tmp_path: Path
) -> None:
    bench = await a_bench_of_small_steps(real_kafka, unique)
    sent = await bench.send(*some_frames(FRAMES))
    # It stops with its answers and its offset in an open transaction, and only the commit missing.
    command = faulty("offsets", signal.SIGSTOP)
    async with worker_process(bench.settings, tmp_path, command) as zombie:
        await zombie.until_stopped()
        before = await bench.committed()
        assert before is not None
        assert before < FRAMES
        async with running(a_worker(bench)):
            await until_committed(bench, FRAMES)
            zombie.send(signal.SIGCONT)
            await zombie.until_said_any(LET_GO)
            assert await bench.committed() == FRAMES
            await answered_once(bench, sent)
            zombie.send(signal.SIGTERM)
            assert await zombie.ended() == 0
    await answered_once(bench, sent)
    assert await bench.committed() == FRAMES
