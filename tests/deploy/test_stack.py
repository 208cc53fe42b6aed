"""Every container's command, run by hand with the stack's environment against a real Kafka that
runs with the properties of the stack's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.footage import STREAMS, draw_footage
from schemas.settings import MIB, KafkaSettings
from tests.deploy.stack import DEADLINE_S, Stack
from tests.rig.choice import why_no_rig
from workers.kafka_clients import make_producer, start_client, stop_client

pytestmark = pytest.mark.broker

CONFIG = ("--config", "configs/compose.yaml")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    if lacking := why_no_rig():
        pytest.skip(lacking)
    with Stack(tmp_path) as made:
        draw_footage(made.app / "footage", pictures=1)
        made.start_kafka()
        yield made


def send_largest(broker: str) -> None:
    """A record as large as the worker takes, which is no picture."""

    async def go() -> None:
        kafka = KafkaSettings(bootstrap_servers=broker)
        producer = make_producer(kafka, max_record_bytes=8 * MIB)
        await start_client(producer, kafka)
        try:
            await producer.send_and_wait("frames", b"x" * (8 * MIB), key=b"vast")
        finally:
            await stop_client(producer)

    asyncio.run(go())


def test_the_stack_answers_its_producer(stack: Stack) -> None:
    before = sorted(path.name for path in stack.app.rglob("*"))
    topics = stack.run("topics")
    assert topics.returncode == 0, topics.stderr
    send_largest(stack.broker)

    worker = stack.start("worker")
    producer = stack.start("producer")
    seen = stack.run("cli", "consume", *CONFIG, "--topic", "detections", "--from-start",
                     "--count", "6", "--timeout", "160", "--json")  # fmt: skip
    assert seen.returncode == 0, stack.log("worker") + stack.log("producer") + seen.stderr
    results = [json.loads(line) for line in seen.stdout.splitlines()]
    assert {result["stream_id"] for result in results} <= set(STREAMS)
    assert any(result["detections"] for result in results)
    deadline = time.monotonic() + DEADLINE_S
    while not stack.is_healthy("worker"):
        assert time.monotonic() < deadline

    letters = stack.run("cli", "dlq", "list", *CONFIG, "--json")
    while not letters.stdout and time.monotonic() < deadline:
        letters = stack.run("cli", "dlq", "list", *CONFIG, "--json")
    assert [json.loads(line)["key"] for line in letters.stdout.splitlines()] == ["vast"]

    stack.stop("producer", producer)
    assert stack.stop("worker", worker) == 0, stack.log("worker")
    assert not stack.is_healthy("worker")
    # The root file system is read-only there: nothing was written beside the program.
    assert sorted(path.name for path in stack.app.rglob("*")) == before
