"""A second opinion on a consumer that gets nothing: does the broker answer anybody else?

A consumer of the library may stay stuck after a broker's restart: it never joins its group again
(aiokafka's issue 1154), or its connection is dead and it does not notice. From inside, this looks
like a broker that is away, and waiting is right for that one only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from schemas.errors import ConfigError, TransientError
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    KafkaError,
    TopicPartition,
    make_consumer,
    start_client,
    stop_client,
)


async def answers_others(
    kafka: KafkaSettings, partitions: Iterable[TopicPartition], timeout_s: float
) -> bool:
    """Whether a new consumer, outside the group, learns the ends of these partitions in time."""
    consumer = make_consumer(kafka, group=False)
    try:
        await start_client(consumer, kafka, timeout_s=timeout_s)
    except (TransientError, ConfigError):
        return False
    try:
        async with asyncio.timeout(timeout_s):
            await consumer.end_offsets(list(partitions))
    except (TimeoutError, KafkaError):
        return False
    finally:
        await stop_client(consumer)
    return True
