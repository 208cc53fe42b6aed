"""`frameloom worker --devices`: two workers under one parent share a group and lose nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from frameloom.children import spawn
from pipeline.item import Coordinates
from schemas.codec import read_result
from tests.assertions import none_lost
from tests.fakes.fleet_worker import two_processors
from tests.integration.kit import DEADLINE_S, Bench, Sent, a_bench, a_jpeg, mortal, reader, sources
from tests.scenario.fleet_process import Fleet, is_gone
from tests.scenario.worker_process import START_S, new_files, watched

pytestmark = pytest.mark.broker

FRAMES, PARTITIONS = 24, 4
A, B = "cpu:0", "cpu:1"


@asynccontextmanager
async def two_workers(bench: Bench, folder: Path) -> AsyncIterator[Fleet]:
    config, log = new_files(bench.settings, folder)
    with log.open("wb") as output:
        process = spawn(two_processors(config), log=output)
        async with watched(process, log):
            yield Fleet(process, log)


async def both_take_records(fleet: Fleet) -> None:
    """Until each has its half of the partitions."""
    async with asyncio.timeout(START_S):
        while True:
            assert fleet.running
            if fleet.said("http_listening"):
                details = await asyncio.to_thread(fleet.details)
                if [details[d].get("assigned_partitions") for d in (A, B)] == [2, 2]:
                    return
            await asyncio.sleep(0.1)


async def send(bench: Bench) -> list[Coordinates]:
    return await bench.send(
        *(Sent(a_jpeg(), key=f"cam-{n}".encode(), partition=n % PARTITIONS) for n in range(FRAMES))
    )


async def answered(bench: Bench, sent: list[Coordinates]) -> None:
    """Until every record sent has a result; nothing else may have one."""
    seen: list[Coordinates] = []
    async with asyncio.timeout(DEADLINE_S), reader(bench.kafka, bench.route.output) as consumer:
        while not set(sent) <= set(seen):
            seen += sources([read_result((await consumer.getone()).value)])
    none_lost(seen, sent)


async def test_a_killed_worker_loses_nothing_and_takes_its_place_again(
    broker: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    bench = await a_bench(broker, unique, partitions=PARTITIONS, kafka=mortal())
    async with two_workers(bench, tmp_path) as fleet:
        await both_take_records(fleet)
        sent = await send(bench)
        os.kill(fleet.pids(A)[0], signal.SIGKILL)
        sent += await send(bench)
        # By the other one, or by the next of its own device.
        await answered(bench, sent)
        await both_take_records(fleet)
        has = [f'frameloom_assigned_partitions{{device="{device}"}} 2.0' for device in (A, B)]
        _, page = await fleet.until_page("/metrics", lambda it: all(each in it for each in has))
        assert f'frameloom_device_restarts_total{{device="{A}"}} 1.0' in page
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        for device in (A, B):
            assert fleet.said("drained", device=device, unsettled=0)
        assert (len(fleet.pids(A)), len(fleet.pids(B))) == (2, 1)
        assert all(is_gone(pid) for device in (A, B) for pid in fleet.pids(device))
