"""A fleet of real processes: signals, deaths, the parent's page, and no orphan."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from frameloom.children import spawn
from schemas.settings import HttpSettings, Settings
from tests.fakes.fleet_child import parent
from tests.integration.kit import until
from tests.scenario.fleet_process import Fleet, is_gone
from tests.scenario.worker_process import START_S, new_files, watched

A, B = "cpu:0", "cpu:1"
SERVE = f"{A}=serve,{B}=serve"


@asynccontextmanager
async def a_fleet(
    folder: Path,
    behaviour: str = SERVE,
    devices: str = "cpu,cpu",
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[Fleet]:
    config, log = new_files(Settings(http=HttpSettings(port=0)), folder)
    with log.open("wb") as output:
        process = spawn(parent(config, devices, behaviour), log=output, env=env)
        async with watched(process, log):
            yield Fleet(process, log)


def states(body: str) -> list[str]:
    """What a probe says of A and B."""
    devices = json.loads(body)["devices"]
    return [devices[device]["state"] for device in (A, B)]


async def test_one_page_and_one_probe_for_all_and_a_signal_for_each(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as fleet:
        await fleet.until_said("child_runs", times=2)
        status, page = await fleet.until_page(
            "/metrics", lambda page: page.count("free_slots{") == 2
        )
        assert status == 200
        for device in (A, B):
            assert f'frameloom_free_slots{{device="{device}"}} 2.0' in page
            assert f'frameloom_device_up{{device="{device}"}} 1.0' in page
        for path in ("/healthz", "/readyz"):
            status, body = await fleet.until_page(path, lambda it: states(it) == ["running"] * 2)
            assert (status, list(json.loads(body)["devices"])) == (200, [A, B])
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        assert fleet.times_said("child_told") == 2
        assert all(is_gone(fleet.pids(device)[0]) for device in (A, B))
        # A processor's worker must not find its neighbours' GPUs.
        assert fleet.times_said("child_runs", cuda="") == 2


async def test_a_killed_worker_comes_back_and_its_neighbour_stays(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as fleet:
        await fleet.until_said("child_runs", times=2)
        (first,), (other,) = fleet.pids(A), fleet.pids(B)
        os.kill(first, signal.SIGKILL)
        await fleet.until_said("worker_died", device=A, code=-signal.SIGKILL)
        await fleet.until_said("child_runs", times=3)
        up = f'frameloom_device_up{{device="{A}"}} 1.0'
        _, page = await fleet.until_page("/metrics", lambda page: up in page)
        assert f'frameloom_device_restarts_total{{device="{A}"}} 1.0' in page
        assert (len(fleet.pids(A)), fleet.pids(B)) == (2, [other])
        await fleet.drained()


async def test_no_orphan_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as fleet:
        await fleet.until_said("child_runs", times=2)
        children = [*fleet.pids(A), *fleet.pids(B)]
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await until(lambda: all(is_gone(pid) for pid in children))
        # In order: they were told, not killed.
        assert fleet.times_said("child_told") == 2


async def test_a_wrong_setting_in_one_ends_all_with_2(tmp_path: Path) -> None:
    async with a_fleet(tmp_path, f"{A}=serve,{B}=config") as fleet:
        assert await fleet.ended() == 2
        assert fleet.said("fleet_stops", device=B)
        assert all(is_gone(pid) for pid in fleet.pids(A))
        assert len(fleet.pids(B)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hurries_and_the_worst_code_is_the_fleets(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with a_fleet(tmp_path, f"{A}=serve,{B}=stay") as fleet:
        await fleet.until_said("child_runs", times=2)
        fleet.send(number)
        await fleet.until_said("child_told", times=2)
        await fleet.until_said("worker_ended", device=A, code=0)
        assert fleet.running
        fleet.send(number)
        assert await fleet.ended() == 1


async def test_a_process_is_told_its_device_and_sees_no_other(tmp_path: Path) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,2,GPU-7,5"}
    async with a_fleet(tmp_path, f"cuda:2=serve,{A}=serve", "2,cpu", env) as fleet:
        await fleet.until_said("child_runs", times=2)
        assert fleet.said("child_runs", device="cuda:2", cuda="GPU-7")
        assert fleet.said("child_runs", device=A, cuda="")
        told = {
            str(line["device"]): str(line.get("set")) for line in fleet.events() if "set" in line
        }
        assert "device.name=cuda'" in told["cuda:2"]
        assert "device.name=cpu'" in told[A]
        assert "kafka.client_id=frameloom-cuda-2" in told["cuda:2"]
        await fleet.drained()


async def test_a_worker_that_stands_still_does_not_hold_up_the_probe(tmp_path: Path) -> None:
    async with a_fleet(tmp_path) as fleet:
        await fleet.until_said("child_runs", times=2)
        (stopped,) = fleet.pids(A)
        said: list[str] = []
        async with asyncio.timeout(START_S):
            # The other one may be too busy for its answer: tried again.
            while said != ["no answer", "running"]:
                await fleet.until_page("/healthz", lambda it: states(it) == ["running"] * 2)
                os.kill(stopped, signal.SIGSTOP)
                status, body = await asyncio.to_thread(fleet.get, "/healthz")
                os.kill(stopped, signal.SIGCONT)
                said = states(body)
                assert said[0] == "no answer"
                assert status == 200, "not yet: it may be busy"
        await fleet.drained()


async def test_a_fleet_without_http_serves_nothing(tmp_path: Path) -> None:
    config, log = new_files(Settings(http=HttpSettings(enabled=False)), tmp_path)
    with log.open("wb") as output:
        process = spawn(parent(config, "cpu", f"{A}=config"), log=output)
        async with watched(process, log) as fleet:
            assert await fleet.ended() == 2
            assert not fleet.said("http_listening")
