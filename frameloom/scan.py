"""Reading long stretches of topics, fast and in bounded memory, from outside any group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from enum import StrEnum
from typing import cast

import msgspec

from frameloom.audit_marks import OffsetRange
from schemas.errors import TransientError
from schemas.settings import MIB, KafkaSettings
from workers.kafka_clients import (
    AIOKafkaConsumer,
    KafkaError,
    Record,
    TopicPartition,
    make_consumer,
    start_client,
    stop_client,
)

_ANSWER_S = 15.0
_SILENCE_S = 75.0
"""How long nothing may come before the scan gives up: longer than the 60 s that a forgotten
transaction holds back what was sent after it."""
_POLL_MS = 500
_POLL_RECORDS = 5_000
"""At a time: small records take several times their bytes once they are taken apart."""
_PREFETCH_BYTES = 32 * MIB
"""Of all partitions together."""
_PARTITION_BYTES = 2 * MIB


class Isolation(StrEnum):
    """Which records count."""

    COMMITTED = "committed"
    """Those outside transactions and of committed ones: what a careful consumer sees."""
    UNCOMMITTED = "uncommitted"
    """Those of aborted and open transactions, too."""


async def log_ranges(
    kafka: KafkaSettings, topics: Iterable[str]
) -> dict[str, dict[int, OffsetRange]]:
    """Topic → partition → its offsets now, from the first still there to the end.

    The end is that of all records, committed or not. The topics must exist.

    Raises:
        TransientError: the broker does not answer.
    """
    names = list(dict.fromkeys(topics))
    # The least that can be fetched: it is only to learn the end.
    smallest = msgspec.structs.replace(kafka, max_partition_fetch_bytes=1)
    consumer = make_consumer(smallest, *names, group=False, auto_offset_reset="earliest")
    await start_client(consumer, kafka)
    try:
        async with asyncio.timeout(_ANSWER_S):
            partitions = sorted(consumer.assignment())
            begins = await consumer.beginning_offsets(partitions)
            ends = await consumer.end_offsets(partitions)
        await _correct(consumer, begins, ends)
    except (TimeoutError, KafkaError) as error:
        raise _away(kafka, error) from error
    finally:
        await stop_client(consumer)
    ranges: dict[str, dict[int, OffsetRange]] = {name: {} for name in names}
    for each in partitions:
        ranges[each.topic][each.partition] = OffsetRange(begins[each], ends[each])
    return ranges


async def _correct(
    consumer: AIOKafkaConsumer,
    begins: Mapping[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> None:
    """Put the ends that fetches report in place of the listed ones: the embedded broker lists an
    end that counts the last batch as one record, and its fetches know better."""
    filled = [each for each, end in ends.items() if end > begins[each]]
    for each in filled:
        consumer.seek(each, ends[each] - 1)
    give_up_at = time.monotonic() + _ANSWER_S
    while asked := [each for each in filled if consumer.highwater(each) is None]:
        if time.monotonic() > give_up_at:
            raise TimeoutError
        await consumer.getmany(*asked, timeout_ms=_POLL_MS)
    for each in filled:
        # Untyped in the library, and known by now.
        ends[each] = max(cast("int", consumer.highwater(each)), ends[each])


async def committed_offsets(
    kafka: KafkaSettings, topic: str, partitions: Iterable[int]
) -> dict[int, int]:
    """Partition → the offset that the group `kafka.group_id` committed; those without are absent.
    The group is not joined.

    Raises:
        TransientError: the broker does not answer.
    """
    wanted = [TopicPartition(topic, partition) for partition in partitions]
    consumer = make_consumer(kafka)
    await start_client(consumer, kafka)
    try:
        consumer.assign(wanted)
        async with asyncio.timeout(_ANSWER_S):
            found = {each.partition: await consumer.committed(each) for each in wanted}
    except (TimeoutError, KafkaError) as error:
        raise _away(kafka, error) from error
    finally:
        await stop_client(consumer)
    return {partition: offset for partition, offset in found.items() if offset is not None}


async def scan(
    kafka: KafkaSettings,
    topic: str,
    ranges: Mapping[int, OffsetRange],
    *,
    isolation: Isolation,
    progress: Callable[[int], None],
) -> AsyncIterator[list[Record]]:
    """The records of the ranges, in lists of one partition each, in the order of its log.

    Memory is bounded by what the consumer fetches ahead: 32 MiB, or a record per partition.

    Args:
        kafka: the connection.
        topic: exists.
        ranges: partition → offsets.
        isolation: with `COMMITTED` an open transaction is waited for.
        progress: told how many offsets are done, gaps included.

    Raises:
        TransientError: nothing came for 75 s though the end was not reached.
    """
    todo = {TopicPartition(topic, p): span for p, span in ranges.items() if len(span)}
    if not todo:
        return
    share = min(_PARTITION_BYTES, max(_PREFETCH_BYTES // len(todo), 1))
    consumer = make_consumer(
        msgspec.structs.replace(kafka, max_partition_fetch_bytes=share),
        group=False,
        auto_offset_reset="earliest",
        isolation=f"read_{isolation.value}",
    )
    await start_client(consumer, kafka)
    try:
        consumer.assign(list(todo))
        at = {each: span.begin for each, span in todo.items()}
        for each, begin in at.items():
            consumer.seek(each, begin)
        give_up_at = time.monotonic() + _SILENCE_S
        # A finished partition is left out of the polls; what was fetched ahead of it is not read.
        while waiting := [each for each, span in todo.items() if at[each] < span.end]:
            found = await consumer.getmany(*waiting, timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
            for each, records in found.items():
                yield _up_to(records, todo[each].end)
            before = sum(at.values())
            for each in waiting:
                # The position, not the last record: a log may end in gaps and markers.
                at[each] = min(await consumer.position(each), todo[each].end)
            if sum(at.values()) > before:
                give_up_at = time.monotonic() + _SILENCE_S
                progress(sum(at[each] - span.begin for each, span in todo.items()))
            elif time.monotonic() > give_up_at:
                raise TransientError(f"{_stuck(waiting, at)}: nothing came in {_SILENCE_S:g} s")
    except KafkaError as error:
        raise _away(kafka, error) from error
    finally:
        await stop_client(consumer)


def _up_to(records: list[Record], end: int) -> list[Record]:
    if records[-1].offset < end:
        return records
    return [record for record in records if record.offset < end]


def _stuck(waiting: list[TopicPartition], at: Mapping[TopicPartition, int]) -> str:
    each = waiting[0]
    return f"{each.topic}/{each.partition} at offset {at[each]}"


def _away(kafka: KafkaSettings, error: BaseException) -> TransientError:
    where = kafka.bootstrap_servers
    return TransientError(f"the broker at {where} does not answer: {error or 'time-out'}")
