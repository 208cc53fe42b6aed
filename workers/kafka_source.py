"""The source: a member of the group, whose partitions come and go, and offsets back to it.

A partition that is revoked is settled and committed within a budget before it is let go. How the
records of those it has come in: `workers/kafka_intake.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import IllegalStateError

from pipeline import metrics as m
from pipeline.ledger import PartitionId
from pipeline.metrics import Metrics
from schemas.errors import FatalError
from schemas.settings import Settings
from workers.delivery import Delivery
from workers.desk import Books
from workers.kafka_clients import (
    AIOKafkaConsumer,
    KafkaError,
    TopicPartition,
    make_consumer,
    start_client,
    stop_client,
)
from workers.kafka_commit import names_of, try_commit
from workers.kafka_intake import MAX_POLL_RECORDS, KafkaIntake
from workers.kafka_lag import answers_others
from workers.logs import Log

ANSWER_TIMEOUT_S = 10.0
"""How long the broker may take to say where a partition is."""


@dataclass(frozen=True, slots=True)
class Claims:
    """How partitions are taken over where the group's word is not enough (exactly once).

    Attributes:
        claim: take these partitions over; each is given to `KafkaSource.admit` once that is done.
        release: give them back.
    """

    claim: Callable[[frozenset[PartitionId]], None]
    release: Callable[[frozenset[PartitionId]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the source asks of the rest of the worker.

    Attributes:
        flush: close every queue with frames of these partitions at once.
        fail: end the worker; from the rebalance listener, whose exceptions the library only logs.
        claims: None where partitions may be read at once, and offsets are committed by the source
            (at least once).
    """

    flush: Callable[[frozenset[PartitionId]], None]
    fail: Callable[[FatalError], None]
    claims: Claims | None = None


class KafkaSource:
    """The group member. Belongs to the event loop's thread.

    Args:
        settings: connection, group and time budgets.
        topics: the input topics of all routes.
        delivery, books: where records go, and what may be polled and committed.
        hooks: see `Hooks`.
        metrics, log: for rebalances and commits.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        delivery: Delivery,
        books: Books,
        hooks: Hooks,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self._settings = settings
        self._topics = tuple(dict.fromkeys(topics))
        self._delivery = delivery
        self._books = books
        self._hooks = hooks
        self._metrics = metrics
        self._log = log
        self._owned: frozenset[PartitionId] = frozenset()
        self._admitting: set[PartitionId] = set()
        """Whose records are taken in now; one set, shared with `_intake`."""
        self._intake = KafkaIntake(
            delivery, books, self._admitting, settings.kafka.max_poll_interval_ms, log
        )
        self._outside_since: float | None = None
        """Since when it waits for the group to assign, in the loop's seconds; None after it did."""
        self._committing = asyncio.Lock()
        self._consumer: AIOKafkaConsumer | None = None

    @property
    def assigned(self) -> frozenset[PartitionId]:
        """The partitions this worker takes records from now."""
        return frozenset(self._admitting)

    async def start(self) -> None:
        """Connect, and begin to join the group; partitions come later.

        Raises:
            TransientError: no broker answers.
        """
        consumer = make_consumer(
            self._settings.kafka,
            max_poll_records=MAX_POLL_RECORDS,
            isolation=self._settings.kafka.isolation_level,
        )
        await start_client(consumer, self._settings.kafka)
        self._consumer = consumer
        self._outside_since = asyncio.get_running_loop().time()
        # Subscribed only now: started with topics, the library would wait for an assignment.
        consumer.subscribe(topics=list(self._topics), listener=_Listener(self))

    async def poll(self) -> None:
        """Take records in until cancelled.

        Raises:
            FatalError: the broker or the group refuses this consumer for good.
        """
        await self._intake.poll(self._started())

    async def commit(self, partitions: Collection[PartitionId] | None = None) -> bool:
        """Commit the watermarks that moved, of these partitions (None: of all). False when the
        broker did not take them; a later commit covers the same. Where partitions are claimed,
        offsets are part of the transactions, and nothing is left to commit.

        Raises:
            FatalError: this group may not commit at all.
        """
        if self._hooks.claims is not None:
            return True
        async with self._committing:
            ledger = self._books.ledger
            offsets = ledger.to_commit(partitions)
            if not offsets:
                return True
            epochs = {partition: ledger.epoch(partition) for partition in offsets}
            if not await try_commit(self._started(), offsets, self._log):
                self._metrics.add(m.COMMITS, 1, "failed")
                return False
            self._metrics.add(m.COMMITS, 1, "done")
            for partition, offset in offsets.items():
                if (epoch := epochs[partition]) is not None:
                    self._delivery.committed(partition, epoch, offset)
            return True

    async def behind(self) -> bool:
        """Whether there is more than this worker gets: the log holds records after its position,
        or the broker answers others and not this consumer, or the group does not let it in. False
        when the broker says nothing to anybody."""
        if self._outside_since is not None:
            return await self._kept_out(self._outside_since)
        consumer, partitions = self._started(), [TopicPartition(*p) for p in self._owned]
        if not partitions:
            return False
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                ends = await consumer.end_offsets(partitions)
                positions = {p: await consumer.position(p) for p in partitions}
        except KafkaError:
            return False
        except TimeoutError:
            return await answers_others(self._settings.kafka, partitions, ANSWER_TIMEOUT_S)
        for partition in partitions:
            lag = max(0, ends[partition] - positions[partition])
            labels = (partition.topic, str(partition.partition))
            self._metrics.set(m.LAG_RECORDS, lag, *labels)
            incomplete = self._books.ledger.incomplete([partition])
            self._metrics.set(m.WATERMARK_LAG, incomplete, *labels)
        return any(ends[p] > positions[p] for p in partitions)

    async def stop(self) -> None:
        """Leave the group and disconnect."""
        if self._consumer is not None and not await stop_client(self._consumer):
            self._log.warning("consumer_stop_timed_out")

    async def assign(self, partitions: Collection[PartitionId]) -> None:
        """The group gave this worker these partitions."""
        ids = {(topic, number) for topic, number in partitions}
        self._outside_since = None
        self._owned = frozenset(ids)
        if self._hooks.claims is None:
            self._delivery.assign(ids)
            self._admitting.clear()
            self._admitting.update(ids)
        else:
            self._hooks.claims.claim(self._owned)
        self._metrics.add(m.REBALANCES, 1)
        self._metrics.set(m.ASSIGNED, len(self._admitting))
        self._log.info("partitions_assigned", partitions=names_of(ids))

    async def committed(self, partition: PartitionId) -> int | None:
        """The group's offset of the partition, or None when it has none.

        Raises:
            KafkaError, TimeoutError: the broker does not say.
        """
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await self._started().committed(TopicPartition(*partition))

    async def admit(self, partition: PartitionId, offset: int | None) -> None:
        """A claimed partition is this worker's: read it from `offset`, or from where the group
        begins. The library looked for its position before the claim, when the offset could still
        move; so it is set again. Nothing happens when the partition has left meanwhile."""
        consumer, at = self._started(), TopicPartition(*partition)
        try:
            if offset is not None:
                consumer.seek(at, offset)
            elif self._settings.kafka.auto_offset_reset == "earliest":
                await consumer.seek_to_beginning(at)
        except IllegalStateError:
            self._log.warning("claimed_partition_left", partitions=names_of([partition]))
            return
        if partition in self._owned:
            self._delivery.assign([partition])
            self._admitting.add(partition)
            self._metrics.set(m.ASSIGNED, len(self._admitting))
            self._log.info("partition_admitted", partitions=names_of([partition]), offset=offset)

    def disown(self, partition: PartitionId) -> None:
        """A claimed partition turned out to be another worker's."""
        self._admitting.discard(partition)
        self._metrics.set(m.ASSIGNED, len(self._admitting))
        self._delivery.revoke([partition])

    async def revoke(self, partitions: Collection[PartitionId]) -> None:
        """The group takes these partitions back: settle what is inside, commit, let go. The
        budget covers all of it; what is unsettled by its end is left to the next owner."""
        ids = frozenset((topic, number) for topic, number in partitions)
        self._outside_since = asyncio.get_running_loop().time()
        self._owned -= ids
        self._admitting -= ids
        self._metrics.set(m.ASSIGNED, len(self._admitting))
        if not ids:
            return
        self._delivery.take_no_more(ids)
        self._hooks.flush(ids)
        try:
            async with asyncio.timeout(self._settings.lifecycle.revoke_timeout_ms / 1e3):
                await self._delivery.wait_settled(ids)
        except TimeoutError:
            left = self._books.ledger.incomplete(ids)
            self._log.warning("revoke_timed_out", unsettled=left)
        await self.commit(ids)
        if self._hooks.claims is not None:
            await self._hooks.claims.release(ids)
        self._delivery.revoke(ids)
        for topic, number in ids:
            self._metrics.forget(m.LAG_RECORDS, topic, str(number))
            self._metrics.forget(m.WATERMARK_LAG, topic, str(number))
        self._log.info("partitions_revoked", partitions=names_of(ids))

    async def _kept_out(self, since_s: float) -> bool:
        """Whether the group should have let this worker in by now: every other member has had its
        time to give partitions back, and the broker answers."""
        waited_s = asyncio.get_running_loop().time() - since_s
        if waited_s < self._settings.kafka.rebalance_timeout_ms / 1e3:
            return False
        first = [TopicPartition(topic, 0) for topic in self._topics]
        return await answers_others(self._settings.kafka, first, ANSWER_TIMEOUT_S)

    def fail(self, error: FatalError) -> None:
        """End the worker."""
        self._hooks.fail(error)

    def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            raise RuntimeError("the source was not started")
        return self._consumer


class _Listener(ConsumerRebalanceListener):
    """The library only logs what a listener raises, so nothing may pass out of here. Its base class
    allows coroutines, though its annotations do not say so."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, revoked: Collection[PartitionId]
    ) -> None:
        try:
            await self._source.revoke(revoked)
        except Exception as error:  # noqa: BLE001 (the library only logs it)
            self._source.fail(FatalError(f"revoke: {type(error).__name__}: {error}"))

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, assigned: Collection[PartitionId]
    ) -> None:
        try:
            await self._source.assign(assigned)
        except Exception as error:  # noqa: BLE001 (the library only logs it)
            self._source.fail(FatalError(f"assign: {type(error).__name__}: {error}"))
