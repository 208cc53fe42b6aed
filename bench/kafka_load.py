"""Topics full of frames for the benches that go through Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    TopicSpec,
    create_topics,
    make_producer,
    start_client,
    stop_client,
)

AT_ONCE = 32
"""Records that wait for their acknowledgement together."""


@dataclass(frozen=True, slots=True)
class Load:
    """A record to be put on a topic."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one bench."""

    input: str
    output: str
    dead_letter: str


def kafka_settings(bootstrap: str, group: str = "bench") -> KafkaSettings:
    """A connection for a bench. Sessions are short: the embedded broker keeps a group's first
    member waiting for half of one."""
    return KafkaSettings(
        bootstrap_servers=bootstrap,
        group_id=group,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )


@asynccontextmanager
async def filled(
    bootstrap: str, loads: Sequence[Load], *, partitions: int = 4, outputs: int = 0
) -> AsyncGenerator[Topics]:
    """New topics with the records on the first, in order. A key stays on one partition. `outputs`
    more for answers are called like the output, with `.0`, `.1` ... behind it."""
    stem = f"bench-{uuid.uuid4().hex[:10]}"
    topics = Topics(f"{stem}.in", f"{stem}.out", f"{stem}.dlq")
    kafka = kafka_settings(bootstrap)
    names = [topics.input, topics.output, topics.dead_letter]
    names += [f"{topics.output}.{number}" for number in range(outputs)]
    await create_topics(
        kafka, [TopicSpec(n, partitions, configs={"max.message.bytes": "9000000"}) for n in names]
    )
    producer = make_producer(kafka)
    await start_client(producer, kafka)
    places = {key: i % partitions for i, key in enumerate(dict.fromkeys(x.key for x in loads))}
    try:
        for start in range(0, len(loads), AT_ONCE):
            sent = [
                await producer.send(topics.input, load.value, load.key, places[load.key])
                for load in loads[start : start + AT_ONCE]
            ]
            await asyncio.gather(*sent)
        yield topics
    finally:
        await stop_client(producer)
