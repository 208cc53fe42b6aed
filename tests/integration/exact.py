"""Benches for exactly once, and what a reader of committed records sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pipeline.item import Coordinates
from schemas.codec import read_result
from schemas.settings import DeliverySettings, Guarantee
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
from workers.kafka_clients import (
    Record,
)

ONCE = DeliverySettings(guarantee=Guarantee.EXACTLY_ONCE)


async def an_exact_bench(
    broker: str, unique: Unique, *, delivery: DeliverySettings = ONCE, partitions: int = 1
) -> Bench:
    return await a_bench(broker, unique, partitions=partitions, kafka=mortal(), delivery=delivery)


async def read_all(bench: Bench, topic: str, isolation: str = "read_committed") -> list[Record]:
    """Every record that a reader of this isolation sees now, in the order of each partition."""
    records: list[Record] = []
    async with reader(bench.kafka, topic, isolation) as consumer, asyncio.timeout(DEADLINE_S):
        partitions = list(consumer.assignment())
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(p) < ends[p] for p in partitions]):
            fetched = await consumer.getmany(*partitions, timeout_ms=200)
            records += [record for batch in fetched.values() for record in batch]
    return records


def origins(records: Sequence[Record]) -> list[Coordinates]:
    """The input records that results and dead letters answer."""
    found: list[Coordinates] = []
    for record in records:
        source = dict(record.headers).get("fl-source")
        if source is None:
            found += sources([read_result(record.value)])
        else:
            topic, partition, offset = source.decode().rsplit("/", 2)
            found.append(Coordinates(topic, int(partition), int(offset)))
    return found


async def answers(bench: Bench, isolation: str = "read_committed") -> list[Coordinates]:
    topics = (bench.route.output, bench.route.dead_letter)
    return [each for topic in topics for each in origins(await read_all(bench, topic, isolation))]


def some_frames(count: int, *, partitions: int = 1, bad_every: int = 0) -> list[Sent]:
    """Pictures of two buckets and several streams, with records between that are no frames."""
    return [
        Sent(
            b"no frame" if bad_every and n % bad_every == 0 else a_jpeg((SMALL, LARGE)[n % 2]),
            key=b"cam-%d" % (n % 3),
            partition=n % partitions,
        )
        for n in range(count)
    ]
