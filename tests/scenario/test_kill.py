"""What a process that ends, in order or not, costs: never an answer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from pipeline.item import Coordinates
from schemas.codec import read_result
from schemas.result import ResultMessage
from schemas.settings import DeviceSettings, FlowSettings
from tests.assertions import each_once, in_offset_order, none_lost
from tests.fakes.pace import Pace
from tests.fakes.paced_worker import paced
from tests.integration.kit import (
    DEADLINE_S,
    LARGE,
    SMALL,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    mortal,
    reader,
    sources,
)
from tests.scenario.stage import HELD_MS
from tests.scenario.worker_process import WorkerProcess, worker_process

pytestmark = pytest.mark.broker


FRAMES = 400
BEFORE = 40
"""Answers to wait for before the process is told: it must be in the middle of its work."""
GATE = 150
"""Frames that its model takes by then, so that there is work left whenever it is told."""
INSIDE = 100
"""Most frames inside: not all that is left is taken in, either."""


async def loaded(broker: str, unique: Unique) -> tuple[Bench, list[Coordinates]]:
    bench = await a_bench(
        broker, unique, partitions=2, kafka=mortal(), flow=FlowSettings(max_items=INSIDE)
    )
    # Held at the gate for as long as it takes to tell it.
    settings = msgspec.structs.replace(
        bench.settings,
        device=DeviceSettings(stage_timeout_ms=HELD_MS),
        lifecycle=msgspec.structs.replace(bench.settings.lifecycle, stall_timeout_ms=HELD_MS),
    )
    bench = Bench(settings)
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
    async with asyncio.timeout(DEADLINE_S), reader(bench.kafka, bench.route.output) as consumer:
        while missing:
            record = await consumer.getone()
            missing -= set(sources([read_result(record.value)]))


async def results_of(bench: Bench) -> list[ResultMessage]:
    return [read_result(record.value) for record in await bench.everything(bench.route.output)]


async def at_work(bench: Bench) -> None:
    """There must be work left, or the test shows nothing."""
    assert BEFORE <= len(await results_of(bench)) < FRAMES


@asynccontextmanager
async def at_the_gate(bench: Bench, folder: Path) -> AsyncIterator[tuple[WorkerProcess, Path]]:
    """The worker as users run it, in the middle of its work, and the file of its pace."""
    pace = folder / "pace"
    Pace(gate=GATE).write(pace)
    async with worker_process(bench.settings, folder, paced(pace)) as worker:
        await bench.results(BEFORE)
        yield worker, pace


async def test_kill_minus_nine_loses_nothing(broker: str, unique: Unique, tmp_path: Path) -> None:
    bench, sent = await loaded(broker, unique)
    async with at_the_gate(bench, tmp_path) as (worker, _):
        worker.send(signal.SIGKILL)
        assert await worker.ended() == -signal.SIGKILL
    await at_work(bench)
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
    async with at_the_gate(bench, tmp_path) as (worker, pace):
        worker.send(signal.SIGTERM)
        await worker.until_said("worker_state", state="draining")
        Pace().write(pace)
        assert await worker.ended() == 0
        assert worker.said("worker_state", state="stopped")
    await at_work(bench)
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
    async with at_the_gate(bench, tmp_path) as (worker, _):
        worker.send(signal.SIGTERM)
        await worker.until_said("worker_state", state="draining")
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 1
        assert not worker.said("worker_state", state="stopped")
        (hurried,) = [line for line in worker.events() if line["event"] == "hurried"]
        uncommitted = hurried["uncommitted"]
        assert isinstance(uncommitted, int)
        assert (uncommitted > 0, hurried["left_group"]) == (True, False)


async def test_hurried_with_nothing_inside_it_leaves_its_place_to_the_next(
    broker: str, unique: Unique, tmp_path: Path
) -> None:
    bench = await a_bench(broker, unique, partitions=2, kafka=mortal())
    async with worker_process(bench.settings, tmp_path, paced(tmp_path / "pace")) as worker:
        # Two signals of one kind could be taken for one.
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGINT)
        assert await worker.ended() == 1
        assert worker.times_said("hurried", uncommitted=0, code=1) == 1
    async with worker_process(bench.settings, tmp_path, paced(tmp_path / "pace")) as worker:
        await worker.drained()
        assert not worker.said("hurried")
