"""Dead letters back to where they came from: key and value untouched, attempts kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

from frameloom.dlq import DeadLetter, LetterFilter, read_dead_letter, source_of
from frameloom.reader import TopicReader, require_topics
from pipeline.item import Coordinates
from schemas.dead_letter import replay_headers
from schemas.errors import ConfigError, TransientError
from schemas.record import RawRecord
from schemas.settings import MIB, KafkaSettings
from workers.kafka_clients import (
    AIOKafkaProducer,
    KafkaError,
    MessageSizeTooLargeError,
    RecordMetadata,
    list_topics,
    make_producer,
    start_client,
    stop_client,
)

_MAX_FLYING = 200
_MAX_FLYING_BYTES = 32 * MIB
_SEND_S = 60.0
"""How long one record may take to be acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What is replayed and how.

    Attributes:
        kafka: the connection.
        topics: dead-letter topics, read up to their ends at the start, so that letters that come
            back while replaying are not replayed again.
        wanted: which letters.
        to: topic to send to; None for each letter's own input topic and partition.
        limit: at most so many letters; None for all.
        dry_run: send nothing, say what would be sent.
        max_record_bytes: the largest value that is sent.
    """

    kafka: KafkaSettings
    topics: Sequence[str]
    wanted: LetterFilter
    to: str | None = None
    limit: int | None = None
    dry_run: bool = False
    max_record_bytes: int = 8 * MIB


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of one letter.

    Attributes:
        letter: the dead letter.
        target: where its record is now, `topic/partition/offset`; in a dry run the topic it
            would go to; empty when it failed.
        failure: why it was not sent; empty when it was.
    """

    letter: DeadLetter
    target: str
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Flying:
    """A record that the broker has not acknowledged."""

    letter: DeadLetter
    nbytes: int
    acknowledged: asyncio.Future[RecordMetadata]


async def replay(plan: ReplayPlan) -> AsyncGenerator[Replay]:
    """Replay, letter by letter in the order of the log. A record that was dead-lettered twice
    (at least once allows it) is replayed once.

    Raises:
        ConfigError: a topic does not exist, or `to` is one of the dead-letter topics.
        TransientError: the broker does not answer.
    """
    if plan.to is not None:
        if plan.to in plan.topics:
            raise ConfigError(f"--to {plan.to}: that is where the dead letters are")
        await require_topics(plan.kafka, plan.to)
    present = frozenset(await list_topics(plan.kafka))
    producer = None
    if not plan.dry_run:
        producer = make_producer(plan.kafka, max_record_bytes=plan.max_record_bytes)
        await start_client(producer, plan.kafka)
    try:
        async with TopicReader(plan.kafka, *plan.topics, from_start=True) as reader:
            sender = _Sender(plan, present, producer)
            async for record in _chosen(plan, reader):
                for done in await sender.send(record):
                    yield done
                if sender.broken is not None:
                    break
            for done in await sender.settle():
                yield done
            if sender.broken is not None:
                raise TransientError(f"the broker takes no records: {sender.broken}")
    finally:
        if producer is not None:
            await stop_client(producer)


async def _chosen(plan: ReplayPlan, reader: TopicReader) -> AsyncIterator[RawRecord]:
    sources: set[str] = set()
    left = plan.limit
    async for record in reader.up_to_now():
        letter = read_dead_letter(record)
        if not plan.wanted.admits(letter) or letter.source in sources:
            continue
        if letter.source:
            sources.add(letter.source)
        yield record
        if left is not None:
            left -= 1
            if left == 0:
                return


class _Sender:
    """Sends with bounded records and bytes in flight, and reports in order.

    Args:
        plan: where to.
        present: the broker's topics.
        producer: None in a dry run.
    """

    def __init__(
        self, plan: ReplayPlan, present: frozenset[str], producer: AIOKafkaProducer | None
    ) -> None:
        self._plan = plan
        self._present = present
        self._producer = producer
        self._flying: deque[_Flying] = deque()
        self._flying_bytes = 0
        self.broken: str | None = None
        """Why sending on makes no sense, or None."""

    async def send(self, record: RawRecord) -> list[Replay]:
        """Take a letter; returns what has landed meanwhile or failed at once."""
        letter, source = read_dead_letter(record), source_of(record.headers)
        topic = self._plan.to or (source.topic if source is not None else "")
        if not topic:
            why = "fl-source is missing or unreadable: name the topic with --to"
            return [*await self.settle(), Replay(letter, "", why)]
        if topic not in self._present:
            return [*await self.settle(), Replay(letter, "", f"there is no topic {topic!r}")]
        if self._producer is None:
            return [Replay(letter, topic)]
        try:
            async with asyncio.timeout(_SEND_S):
                acknowledged = await self._producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=await _partition(self._producer, topic, source),
                    headers=replay_headers(record),
                )
        except (TimeoutError, KafkaError) as error:
            return [*await self.settle(), self._failed(letter, error)]
        nbytes = len(record.value or b"")
        self._flying.append(_Flying(letter, nbytes, acknowledged))
        self._flying_bytes += nbytes
        return await self._settle(_MAX_FLYING, _MAX_FLYING_BYTES)

    async def settle(self) -> list[Replay]:
        """Wait for everything in flight."""
        return await self._settle(0, 0)

    async def _settle(self, most: int, most_bytes: int) -> list[Replay]:
        landed: list[Replay] = []
        while self._flying and (len(self._flying) > most or self._flying_bytes > most_bytes):
            first = self._flying.popleft()
            self._flying_bytes -= first.nbytes
            try:
                async with asyncio.timeout(_SEND_S):
                    at = await first.acknowledged
            except (TimeoutError, KafkaError) as error:
                landed.append(self._failed(first.letter, error))
            else:
                landed.append(Replay(first.letter, f"{at.topic}/{at.partition}/{at.offset}"))
        return landed

    def _failed(self, letter: DeadLetter, error: BaseException) -> Replay:
        # A record that is too large says nothing about the next one; anything else does.
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        if not isinstance(error, MessageSizeTooLargeError):
            self.broken = why
        return Replay(letter, "", why)


async def _partition(
    producer: AIOKafkaProducer, topic: str, source: Coordinates | None
) -> int | None:
    """The partition that the record came from, where it goes back to its own topic: producers of
    other libraries may place keys elsewhere. None lets the key decide."""
    if source is None or topic != source.topic:
        return None
    partitions = await producer.partitions_for(topic)
    return source.partition if source.partition in partitions else None
