"""What a process that ends, in order or not, costs: never an answer."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from pipeline.item import Coordinates
from schemas.codec import read_result
from schemas.result import ResultMessage
from tests.assertions import each_once, in_offset_order, none_lost
from tests.integration.kit import (
    LARGE,
    SMALL,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    reader,
    sources,
)
from tests.scenario.worker_process import worker_process

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


FRAMES = 400
BEFORE = 40
"""Answers to wait for before the process is told: it must be in the middle of its work."""


async def loaded(broker: str, unique: Unique) -> tuple[Bench, list[Coordinates]]:
    bench = await a_bench(broker, unique, partitions=2)
    # Larger shapes, so that the model takes its time and there is work left to interrupt.
    buckets = [msgspec.structs.replace(b, height=192, width=320) for b in bench.route.buckets]
    route = msgspec.structs.replace(bench.route, buckets=buckets)
    bench = Bench(msgspec.structs.replace(bench.settings, routes=[route]))
    sizes = (SMALL, LARGE)
    sent = await bench.send(
        *(
            Sent(a_jpeg(sizes[n % 2]), key=f"cam-{n % 6}".encode(), partition=n % 2)
            for n in range(FRAMES)
        )
    )
    return bench, sent


async def finished(bench: Bench, sent: list[Coordinates]) -> None:
    """Return once every record sent has a result."""
    missing = set(sent)
    async with asyncio.timeout(120), reader(bench.kafka, bench.route.output) as consumer:
        while missing:
            record = await consumer.getone()
            missing -= set(sources([read_result(record.value)]))


async def results_of(bench: Bench) -> list[ResultMessage]:
    return [read_result(record.value) for record in await bench.everything(bench.route.output)]


async def interrupted(bench: Bench) -> None:
    """The process has ended: it must have left work to do, or the test shows nothing."""
    assert BEFORE <= len(await results_of(bench)) < FRAMES


async def test_kill_minus_nine_loses_nothing(broker: str, unique: Unique, tmp_path: Path) -> None:
    bench, sent = await loaded(broker, unique)
    async with worker_process(bench.settings, tmp_path) as worker:
        await bench.results(BEFORE)
        worker.send(signal.SIGKILL)
        assert await worker.ended() == -signal.SIGKILL
    await interrupted(bench)
    async with worker_process(bench.settings, tmp_path) as worker:
        await finished(bench, sent)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
    results = await results_of(bench)
    none_lost(sources(results), sent)


async def test_sigterm_under_load_loses_nothing_and_answers_nothing_twice(
    broker: str, unique: Unique, tmp_path: Path
) -> None:
    bench, sent = await loaded(broker, unique)
    async with worker_process(bench.settings, tmp_path) as worker:
        await bench.results(BEFORE)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert worker.said("worker_state", state="stopped")
    await interrupted(bench)
    async with worker_process(bench.settings, tmp_path) as worker:
        await finished(bench, sent)
        worker.send(signal.SIGINT)
        assert await worker.ended() == 0
    results = await results_of(bench)
    each_once(sources(results), sent)
    in_offset_order(results)


async def test_a_second_signal_ends_the_process_at_once(
    broker: str, unique: Unique, tmp_path: Path
) -> None:
    bench, _ = await loaded(broker, unique)
    async with worker_process(bench.settings, tmp_path) as worker:
        await bench.results(BEFORE)
        worker.send(signal.SIGTERM)
        await worker.until_said("worker_state", state="draining")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 1
        assert not worker.said("worker_state", state="stopped")
