"""The sink of exactly-once delivery: one transactional producer per input partition.

Fewer producers would be cheaper, and were considered. Kafka's own answer is one producer per
worker, whose offset commits carry the member's id and generation, so that the group coordinator
can refuse a worker that is no longer a member. aiokafka's commits carry neither: the producer's
epoch is the only fence there is, so it has to change hands together with the partition, and that
takes an id, and with it a producer, per partition. See ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from pipeline.ledger import PartitionId
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from schemas.errors import ConfigError, TransientError
from schemas.settings import Settings
from workers.kafka_clients import (
    AIOKafkaProducer,
    KafkaError,
    make_producer,
    start_client,
    stop_client,
)
from workers.kafka_outputs import MAX_BATCH_BYTES, Blocked, Outputs
from workers.kafka_partition_writer import Line, Pace, PartitionWriter, Ties
from workers.logs import Log
from workers.tasks import Tasks
from workers.tickets import Answer

CONNECTING_AT_ONCE = 8
"""Producers that start at the same time, when many partitions are assigned at once."""


class KafkaTransactions:
    """Writes every answer in a transaction with its offset. Belongs to the event loop's thread.

    Args:
        settings: the connection, the group, the deadline and the size limits.
        topics: every output and dead-letter topic.
        ties: see `Ties`.
        tasks: runs the writers; a FatalError of one ends the worker.
        metrics, log: for transactions.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        ties: Ties,
        tasks: Tasks,
        metrics: Metrics,
        log: Log,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._outputs = Outputs(topics)
        self._blocked = Blocked(topics, metrics, log)
        self._line = Line(self._connect, self._outputs, _pace(settings))
        self._ties = ties
        self._tasks = tasks
        self._metrics = metrics
        self._log = log
        self._clock = clock
        self._connecting = asyncio.Semaphore(CONNECTING_AT_ONCE)
        self._writers: dict[PartitionId, PartitionWriter] = {}
        self._stopped = False

    @property
    def blocked(self) -> Mapping[str, float]:
        """Topics whose answers do not get through, and for how many seconds, as `gauge` found it.
        Any thread may ask."""
        return self._blocked.seconds

    def gauge(self) -> None:
        """Look how long answers have waited, and say so."""
        now, longest = self._clock(), dict[str, float]()
        for writer in self._writers.values():
            for topic, waited_s in writer.waited_s(now).items():
                longest[topic] = max(longest.get(topic, 0.0), waited_s)
        self._blocked.look(longest)

    async def start(self) -> None:
        """Make sure that the broker has transactions, and learn each topic's partitions.

        Raises:
            ConfigError: it has none.
            TransientError: no broker, or a topic has no partitions to be had.
        """
        try:
            producer = await self._connected(f"{self._settings.kafka.group_id}/frameloom-start")
        except TransientError as error:
            cause = error.__cause__
            if isinstance(cause, KafkaError) and cause.retriable:
                raise
            # The broker answered before, when it was asked for its topics.
            raise ConfigError(
                "delivery.guarantee = exactly_once: the broker at "
                f"{self._settings.kafka.bootstrap_servers} does not start a transactional producer "
                f"(InitProducerId: {cause or error}); it needs transactions, with "
                "transaction.state.log.replication.factor at most its number of brokers and "
                "transaction.max.timeout.ms at least twice delivery.produce_timeout_ms, or use "
                "at_least_once"
            ) from error
        try:
            timeout_s = self._settings.delivery.produce_timeout_ms / 1e3
            await self._outputs.learn(producer, timeout_s)
        finally:
            await stop_client(producer)

    def put(self, answer: Answer) -> None:
        """Queue an answer behind those of the records before it. Never blocks."""
        writer = self._writers.get(answer.ticket.partition)
        if writer is None:
            self._ties.receipts.dropped(answer)
        else:
            writer.put(answer)

    def claim(self, partitions: Collection[PartitionId]) -> None:
        """The group gave this worker these partitions: each is admitted once its writer has it."""
        if self._stopped:
            # The group may assign once more before it learns that this worker leaves.
            return
        for partition in partitions:
            writer = PartitionWriter(
                partition, self._line, self._ties, self._metrics, self._log, self._clock
            )
            self._writers[partition] = writer
            self._tasks.spawn(writer.run(), _task_name(partition))

    async def release(self, partitions: Collection[PartitionId]) -> None:
        """End these writers. A transaction that is open is aborted; of one whose commit is under
        way, the next owner finds out what became of it."""
        ending = [p for p in partitions if self._writers.pop(p, None) is not None]
        if ending:
            await self._tasks.cancel(*map(_task_name, ending))

    async def stop(self) -> None:
        """End all writers, and begin no more. What is still queued stays unsent and unsettled."""
        self._stopped = True
        await self.release(list(self._writers))

    async def _connect(self, partition: PartitionId) -> AIOKafkaProducer:
        topic, number = partition
        return await self._connected(f"{self._settings.kafka.group_id}/{topic}/{number}")

    async def _connected(self, transactional_id: str) -> AIOKafkaProducer:
        limits = self._settings.limits
        async with self._connecting:
            producer = make_producer(
                self._settings.kafka,
                max_record_bytes=max(limits.max_record_bytes, limits.max_result_bytes),
                max_batch_bytes=2 * MAX_BATCH_BYTES,
                timeout_ms=self._settings.delivery.produce_timeout_ms,
                linger_ms=0,
                transactional_id=transactional_id,
            )
            await start_client(producer, self._settings.kafka)
        return producer


def _pace(settings: Settings) -> Pace:
    delivery, kafka = settings.delivery, settings.kafka
    return Pace(
        group=kafka.group_id,
        max_answers=delivery.commit_every,
        interval_s=delivery.transaction_interval_ms / 1e3,
        timeout_s=delivery.produce_timeout_ms / 1e3,
        give_up_s=settings.lifecycle.stall_timeout_ms / 1e3,
        lost_pause_s=2 * kafka.heartbeat_interval_ms / 1e3,
    )


def _task_name(partition: PartitionId) -> str:
    return f"transactions {partition[0]}/{partition[1]}"
