"""Results on a topic, as a worker would have written them, and the programs that read them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgpack

from schemas.codec import write_result
from schemas.result import Detection, ResultMessage, Source, Status, Times
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    TopicPartition,
    TopicSpec,
    create_topics,
    make_consumer,
    make_producer,
    start_client,
    stop_client,
)

TIMEOUT_S = 180.0
CAR = Detection((4.0, 8.5, 30.0, 24.3), 0.906, 2, "car")
PERSON = Detection((0.0, 1.0, 12.0, 40.0), 0.5, 0, "person")


def result(
    seq: int,
    *detections: Detection,
    stream: str = "gate",
    status: Status = Status.OK,
    captured_at_us: int = 1_796_000_000_000_000,
    offset: int | None = None,
) -> bytes:
    """A result by the worker's own codec; `offset` is the frame's, `seq` where none is given."""
    times = Times(
        received_us=1_796_000_000_100_000, batched_us=1_796_000_000_110_000,
        started_us=1_796_000_000_120_000, finished_us=1_796_000_000_150_000,
        decode_ms=1.0, infer_ms=20.0, post_ms=0.5,
    )  # fmt: skip
    return write_result(
        ResultMessage(
            stream_id=stream, seq=seq, captured_at_us=captured_at_us, status=status,
            width=64, height=48, detections=list(detections), times=times,
            source=Source("frames", 0, seq if offset is None else offset),
        )
    )  # fmt: skip


def with_keys(value: bytes, **keys: Any) -> bytes:
    """The result with other keys put in, at the top and in each detection and its source."""
    decoded = msgpack.unpackb(value)
    for found in decoded["detections"]:
        found["mask"] = [1, 2, 3]
    return msgpack.packb({**decoded, **keys})


def send(broker: str, topic: str, *values: bytes, key: bytes = b"gate") -> None:
    """To a topic of one partition, made if need be."""

    async def go() -> None:
        kafka = KafkaSettings(bootstrap_servers=broker)
        await create_topics(kafka, [TopicSpec(topic)])
        producer = make_producer(kafka)
        await start_client(producer, kafka)
        try:
            for value in values:
                await producer.send_and_wait(topic, value, key=key)
        finally:
            await stop_client(producer)

    asyncio.run(go())


def committed(broker: str, topic: str, group: str) -> int | None:
    """The group's next offset."""

    async def go() -> int | None:
        kafka = KafkaSettings(bootstrap_servers=broker, group_id=group)
        consumer = make_consumer(kafka)
        await start_client(consumer, kafka)
        try:
            consumer.assign([TopicPartition(topic, 0)])
            return await consumer.committed(TopicPartition(topic, 0))
        finally:
            await stop_client(consumer)

    return asyncio.run(go())


def run(command: Sequence[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program, to its end."""
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
