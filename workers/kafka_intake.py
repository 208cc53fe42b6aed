"""The intake: records in from Kafka, of the partitions that may be taken in.

Only those are polled, so that Kafka keeps the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from aiokafka.errors import IllegalStateError

from pipeline.ledger import PartitionId
from pipeline.retry import Backoff
from schemas.errors import FatalError
from workers.delivery import Delivery
from workers.desk import Books
from workers.kafka_clients import AIOKafkaConsumer, KafkaError, Record, TopicPartition
from workers.kafka_record import raw_record
from workers.logs import Log

POLL_MS = 200
"""Longest wait of one poll: how long a partition that became wanted may wait to be polled."""
MAX_POLL_RECORDS = 128
CHUNK = 64
"""Records admitted before the event loop may turn to other work: a millisecond or two of it. Each
chunk wakes the engine's thread, which costs as much as admitting several records."""
BACKOFF = Backoff(first_s=0.5, longest_s=5.0, random=random.random)

NOBODY = TopicPartition("frameloom-nobody", 0)
"""A partition that is never assigned: polling it returns nothing, and tells the group that this
member is alive."""


class KafkaIntake:
    """Polls for delivery. Belongs to the event loop's thread.

    Args:
        delivery, books: where records go, and what may be polled.
        admitting: the partitions whose records are taken in now; changed by the source.
        max_poll_interval_ms: the group's: after so long without a poll, a member is given up.
        log: for errors of polls.
    """

    def __init__(
        self,
        delivery: Delivery,
        books: Books,
        admitting: AbstractSet[PartitionId],
        max_poll_interval_ms: int,
        log: Log,
    ) -> None:
        self._delivery = delivery
        self._books = books
        self._admitting = admitting
        self._idle_s = min(1.0, max_poll_interval_ms / 3e3)
        self._log = log

    async def poll(self, consumer: AIOKafkaConsumer) -> None:
        """Take records in until cancelled.

        Raises:
            FatalError: the broker or the group refuses this consumer for good.
        """
        failures = 0
        while True:
            wanted = self._books.flow.wanted(self._admitting, self._delivery.full)
            self._delivery.progress.clear()
            try:
                if wanted:
                    await self._poll_once(consumer, wanted)
                    failures = 0
                    continue
                await consumer.getmany(NOBODY, timeout_ms=0)
            except KafkaError as error:
                failures += 1
                await self._after_error(error, failures)
            await self._wait_for_progress()

    async def _poll_once(self, consumer: AIOKafkaConsumer, wanted: Sequence[PartitionId]) -> None:
        room = min(self._books.flow.room, MAX_POLL_RECORDS)
        fetched = await consumer.getmany(
            *(TopicPartition(*partition) for partition in wanted),
            timeout_ms=POLL_MS,
            max_records=room,
        )
        # Nothing may be awaited between the poll and this: a rebalance could come in between.
        epochs = {partition: self._books.ledger.epoch(partition) for partition in fetched}
        for partition in fetched:
            if partition not in self._admitting:
                self._give_back(consumer, partition, fetched[partition])
        for partition, records in fetched.items():
            await self._take(partition, records, epochs[partition])

    def _give_back(
        self, consumer: AIOKafkaConsumer, partition: TopicPartition, records: Sequence[Record]
    ) -> None:
        """The poll outlived a rebalance, and these may be the first records of the new assignment:
        left alone, they would be passed over."""
        # It is nobody's, or has its position from the group: nothing is passed over.
        with contextlib.suppress(IllegalStateError):
            consumer.seek(partition, records[0].offset)

    async def _take(
        self, partition: PartitionId, records: Sequence[Record], epoch: int | None
    ) -> None:
        for start in range(0, len(records), CHUNK):
            # Records of a partition that left meanwhile are its next owner's.
            if partition not in self._admitting or self._books.ledger.epoch(partition) != epoch:
                return
            self._delivery.take(partition, [raw_record(r) for r in records[start : start + CHUNK]])
            epoch = self._books.ledger.epoch(partition)
            await asyncio.sleep(0)

    async def _after_error(self, error: KafkaError, failures: int) -> None:
        if not error.retriable:
            raise FatalError(f"cannot read from Kafka: {error}") from error
        self._log.warning("poll_failed", error=str(error))
        await asyncio.sleep(BACKOFF.pause_s(failures))

    async def _wait_for_progress(self) -> None:
        try:
            async with asyncio.timeout(self._idle_s):
                await self._delivery.progress.wait()
        except TimeoutError:
            return
