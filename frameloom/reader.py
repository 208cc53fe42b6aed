"""Reading topics from outside any group: nothing is committed, nobody's work is taken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import TracebackType

from frameloom.scan import log_ranges
from pipeline.item import Coordinates
from schemas.codec import RawRecord
from schemas.errors import ConfigError, FrameloomError, TransientError
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    ConsumerRecord,
    KafkaError,
    OffsetOutOfRangeError,
    TopicPartition,
    check_topics,
    make_consumer,
    partition_numbers,
    start_client,
    stop_client,
)
from workers.kafka_record import raw_record

_ANSWER_S = 15.0
_FETCH_S = 4.0


class RecordGoneError(FrameloomError):
    """The record asked for is no longer (or not yet) in its topic."""


class TopicReader:
    """All partitions of some topics, from their beginning or from their end at the start.

    Use as an async context manager, inside one event loop.

    Args:
        kafka: the connection.
        topics: at least one; all must exist.
        from_start: read what is there already, too.
    """

    def __init__(self, kafka: KafkaSettings, *topics: str, from_start: bool) -> None:
        self._kafka = kafka
        self._topics = topics
        self._from_start = from_start
        self._partitions: list[TopicPartition] = []

    async def __aenter__(self) -> TopicReader:
        """Connect, and fix where reading begins.

        Raises:
            ConfigError: a topic does not exist.
            TransientError: the broker does not answer.
        """
        await require_topics(self._kafka, *self._topics)
        self._consumer = make_consumer(
            self._kafka,
            *self._topics,
            group=False,
            auto_offset_reset="earliest" if self._from_start else "latest",
        )
        await start_client(self._consumer, self._kafka)
        try:
            async with asyncio.timeout(_ANSWER_S):
                self._partitions = sorted(self._consumer.assignment())
                # The end is looked up now: at the first poll it would be later than the caller
                # believes, and records sent in between would be missed.
                if not self._from_start:
                    for partition, end in (await self._ends()).items():
                        self._consumer.seek(partition, end)
        except (TimeoutError, KafkaError) as error:
            await stop_client(self._consumer)
            raise self._away(error) from error
        except BaseException:
            await stop_client(self._consumer)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await stop_client(self._consumer)

    async def read(self, timeout_s: float) -> list[RawRecord]:
        """What arrived, in order within each partition; empty after `timeout_s` without any."""
        try:
            found = await self._consumer.getmany(
                *self._partitions, timeout_ms=max(round(timeout_s * 1000), 0)
            )
        except KafkaError as error:
            raise self._away(error) from error
        return [raw_record(record) for records in found.values() for record in records]

    async def up_to_now(self) -> AsyncIterator[RawRecord]:
        """Every record up to the ends that the partitions have now.

        Raises:
            TransientError: nothing came for a while though the end was not reached.
        """
        ends = await self._ends()
        give_up_at = time.monotonic() + _ANSWER_S
        while not await self._reached(ends):
            records = await self.read(0.5)
            for record in records:
                # What was added since then may come with what was there.
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    yield record
            if records:
                give_up_at = time.monotonic() + _ANSWER_S
            elif time.monotonic() > give_up_at:
                raise TransientError(f"{', '.join(self._topics)}: the broker sends no more records")

    async def _ends(self) -> dict[TopicPartition, int]:
        ranges = await log_ranges(self._kafka, self._topics)
        return {each: ranges[each.topic][each.partition].end for each in self._partitions}

    async def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if await self._consumer.position(partition) < end:
                return False
        return True

    def _away(self, error: BaseException) -> TransientError:
        where = self._kafka.bootstrap_servers
        return TransientError(f"the broker at {where} does not answer: {error or 'time-out'}")


class RecordFetcher:
    """Single records by their coordinates. Use as an async context manager."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._consumer = make_consumer(kafka, group=False, auto_offset_reset="none")

    async def __aenter__(self) -> RecordFetcher:
        """Connect. Raises TransientError when the broker does not answer."""
        await start_client(self._consumer, self._kafka)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await stop_client(self._consumer)

    async def fetch(self, coordinates: Coordinates, *, timeout_s: float = 10.0) -> RawRecord:
        """The record at these coordinates.

        Raises:
            RecordGoneError: no such record: past the end, or removed by retention.
            TransientError: the broker does not answer.
        """
        where = f"{coordinates.topic}/{coordinates.partition}/{coordinates.offset}"
        partition = TopicPartition(coordinates.topic, coordinates.partition)
        try:
            async with asyncio.timeout(timeout_s):
                self._consumer.assign([partition])
                first = (await self._consumer.beginning_offsets([partition]))[partition]
        except (TimeoutError, KafkaError) as error:
            why = str(error) or "time-out"
            raise TransientError(f"the broker did not send {where}: {why}") from error
        if coordinates.offset < first:
            raise RecordGoneError(f"{where} was removed; the first one left is {first}")
        self._consumer.seek(partition, coordinates.offset)
        # Not judged by the end offset, which the embedded broker states too low.
        found = await self._poll(partition, timeout_s)
        if found is None:
            raise RecordGoneError(f"{where} is not there (yet)")
        if found.offset != coordinates.offset:
            raise RecordGoneError(f"{where} was removed; the next one is {found.offset}")
        return raw_record(found)

    async def _poll(
        self, partition: TopicPartition, timeout_s: float
    ) -> ConsumerRecord[bytes, bytes] | None:
        give_up_at = time.monotonic() + min(timeout_s, _FETCH_S)
        while True:
            try:
                found = await self._consumer.getmany(partition, timeout_ms=500, max_records=1)
            except OffsetOutOfRangeError:
                return None
            except KafkaError as error:
                raise TransientError(f"the broker does not answer: {error}") from error
            for records in found.values():
                return records[0]
            if time.monotonic() > give_up_at:
                return None


async def require_topics(kafka: KafkaSettings, *topics: str) -> None:
    """Raises ConfigError, naming the remedy, where a topic does not exist."""
    missing = await check_topics(kafka, topics)
    if missing:
        names = ", ".join(missing)
        raise ConfigError(
            f"no such topic at {kafka.bootstrap_servers}: {names}"
            " (create topics with: frameloom topics create --config C)"
        )


async def require_partition(kafka: KafkaSettings, coordinates: Coordinates) -> None:
    """Raises ConfigError where the topic or its partition does not exist."""
    topic, wanted = coordinates.topic, coordinates.partition
    await require_topics(kafka, topic)
    numbers = await partition_numbers(kafka, topic)
    if wanted not in numbers:
        raise ConfigError(
            f"{topic}/{wanted}/{coordinates.offset}: {topic} has no partition {wanted}, but "
            + ", ".join(map(str, numbers))
        )
