"""`frameloom worker --restart`: a worker that is killed has a successor, and a signal ends both."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from schemas.codec import read_result
from tests.assertions import none_lost
from tests.integration.kit import Sent, a_bench, a_jpeg, mortal, reader, sources, until
from tests.scenario.worker_process import WorkerProcess, worker_process

pytestmark = pytest.mark.broker

FRAMES = 20


def command(config: Path) -> list[str]:
    return [sys.executable, "-m", "frameloom", "worker", "--restart", "--config", str(config)]


def workers_of(supervisor: WorkerProcess) -> list[int]:
    """Process ids of every worker it started, in order."""
    return [
        int(str(line["pid"])) for line in supervisor.events() if line["event"] == "worker_started"
    ]


async def test_a_killed_worker_is_replaced_and_a_signal_drains_the_last(
    broker: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    bench = await a_bench(broker, unique, partitions=2, kafka=mortal())
    async with worker_process(bench.settings, tmp_path, command) as supervisor:
        (first,) = workers_of(supervisor)
        os.kill(first, signal.SIGKILL)
        await supervisor.until_said("worker_died", code=-signal.SIGKILL)
        sent = await bench.send(
            *(Sent(a_jpeg(), key=f"cam-{n}".encode(), partition=n % 2) for n in range(FRAMES))
        )
        async with reader(bench.kafka, bench.route.output) as output:
            results = [await output.getone() for _ in range(FRAMES)]
        supervisor.send(signal.SIGTERM)
        assert await supervisor.ended() == 0
        assert supervisor.said("worker_state", state="stopped")
        started = workers_of(supervisor)
    none_lost(sources([read_result(record.value) for record in results]), sent)
    assert len(started) == 2
    await until(lambda: not any(psutil.pid_exists(pid) for pid in started))
