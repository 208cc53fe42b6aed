"""The sink: answers out to Kafka, acknowledged by all replicas before they count.

One writer per output partition. It gathers what is queued into one batch, sends it, and waits for
the acknowledgement before it sends the next; so a batch that has to be tried again can never be
overtaken by a later answer of the same stream. Nothing is lost to this in speed: Kafka clients
have one request per partition under way either way, and the next batch grows meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.partitioner import DefaultPartitioner

from pipeline import metrics as m
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from pipeline.retry import Backoff
from schemas.errors import FatalError, PoisonError, Reason, TransientError
from schemas.settings import KafkaSettings, Settings
from workers.kafka_clients import (
    AIOKafkaProducer,
    KafkaError,
    make_producer,
    start_client,
    stop_client,
)
from workers.logs import Log
from workers.tasks import Spawn
from workers.tickets import Answer

MAX_BATCH_BYTES = 512 * 1024
"""Most bytes in one batch, unless one answer alone is larger: brokers limit a batch, not only a
record, and their default limit is 1 MiB."""
MAX_BATCH_ANSWERS = 500

BACKOFF = Backoff(first_s=0.2, longest_s=5.0, random=random.random)

BLOCKED_AFTER_S = 10.0
"""A topic whose answers wait longer than this for an acknowledgement counts as blocked."""

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)

OutputPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Receipts:
    """Whom the sink tells what became of an answer.

    Attributes:
        is_live: whether the answer is still this worker's to send; asked right before sending.
        acknowledged: the broker has it.
        dropped: it was not sent, because it is not live.
        too_large: the broker refuses its size; returns the dead letter to send instead.
    """

    is_live: Callable[[Answer], bool]
    acknowledged: Callable[[Answer], None]
    dropped: Callable[[Answer], None]
    too_large: Callable[[Answer, PoisonError], Answer]


@dataclass(slots=True, eq=False)
class _Writer:
    """The queue of one output partition. Bounded by the credits its answers hold."""

    target: OutputPartition
    sent_at: float | None = None
    """When the batch that is not acknowledged yet was first sent, monotonic seconds."""
    queue: deque[Answer] = field(default_factory=deque[Answer])
    waiting: asyncio.Event = field(default_factory=asyncio.Event)


class KafkaSink:
    """Sends answers. Belongs to the event loop's thread.

    Args:
        settings: the connection, the send deadline and the size limits.
        topics: every output and dead-letter topic.
        receipts: see `Receipts`.
        metrics, log: for retries.
        spawn: runs a writer until the worker ends; a FatalError of it ends the worker.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[str],
        receipts: Receipts,
        metrics: Metrics,
        log: Log,
        spawn: Spawn,
        *,
        clock: Clock,
    ) -> None:
        self._kafka: KafkaSettings = settings.kafka
        self._limits = settings.limits
        self._timeout_s = settings.delivery.produce_timeout_ms / 1e3
        self._give_up_s = settings.lifecycle.stall_timeout_ms / 1e3
        self._topics = tuple(dict.fromkeys(topics))
        self._receipts = receipts
        self._metrics = metrics
        self._log = log
        self._partition = DefaultPartitioner()
        self._partitions: dict[str, list[int]] = {}
        self._writers: dict[OutputPartition, _Writer] = {}
        self._spawn = spawn
        self._clock = clock
        self._blocked: Mapping[str, float] = {}
        self._producer: AIOKafkaProducer | None = None

    @property
    def blocked(self) -> Mapping[str, float]:
        """Topics whose answers do not get through, and for how many seconds, as `gauge` found it.
        Any thread may ask."""
        return self._blocked

    def gauge(self) -> None:
        """Look how long answers have waited, and say so."""
        now, longest = self._clock(), dict.fromkeys(self._topics, 0.0)
        for (topic, _), writer in self._writers.items():
            if writer.sent_at is not None:
                longest[topic] = max(longest[topic], now - writer.sent_at)
        blocked = {topic: s for topic, s in longest.items() if s >= BLOCKED_AFTER_S}
        for topic in self._topics:
            self._metrics.set(m.ANSWERS_BLOCKED, blocked.get(topic, 0.0), topic)
        for topic in blocked.keys() ^ self._blocked.keys():
            self._log.warning(
                "answers_blocked" if topic in blocked else "answers_flow", topic=topic
            )
        self._blocked = blocked

    async def start(self) -> None:
        """Connect and learn each topic's partitions. They are learned once: a topic that grows
        would move keys to other partitions and break their order, so it takes a restart.

        Raises:
            TransientError: no broker, or a topic has no partitions to be had.
        """
        # The library gives a batch up after its own time-out; ours is the longer one, so that a
        # batch is never tried again by us while the library still tries.
        half_ms = max(1, round(self._timeout_s * 500))
        limit = max(self._limits.max_record_bytes, self._limits.max_result_bytes)
        producer = make_producer(
            self._kafka,
            max_record_bytes=limit,
            max_batch_bytes=2 * MAX_BATCH_BYTES,
            timeout_ms=half_ms,
        )
        await start_client(producer, self._kafka)
        self._producer = producer
        for topic in self._topics:
            try:
                async with asyncio.timeout(self._timeout_s):
                    self._partitions[topic] = sorted(await producer.partitions_for(topic))
            except (TimeoutError, KafkaError) as error:
                raise TransientError(f"topic {topic!r} has no partitions: {error}") from error

    def put(self, answer: Answer) -> None:
        """Queue an answer. Never blocks. Answers with one key leave in the order they are put."""
        partitions = self._partitions[answer.topic]
        if answer.key is None:
            # A dead letter without a key: its source partition keeps its neighbours together.
            partition = partitions[answer.ticket.record.partition % len(partitions)]
        else:
            partition = self._partition(answer.key, partitions, partitions)
        writer = self._writers.get((answer.topic, partition))
        if writer is None:
            writer = self._writers[answer.topic, partition] = _Writer((answer.topic, partition))
            self._spawn(self._write(writer), f"sink {answer.topic}/{partition}")
        writer.queue.append(answer)
        writer.waiting.set()

    async def stop(self) -> None:
        """Disconnect. What is still queued stays unsent and unsettled."""
        if self._producer is not None:
            await stop_client(self._producer)

    async def _write(self, writer: _Writer) -> None:
        while True:
            await writer.waiting.wait()
            batch = self._gather(writer)
            if batch:
                await self._deliver(writer, batch)

    def _gather(self, writer: _Writer) -> list[Answer]:
        batch: list[Answer] = []
        nbytes = 0
        while writer.queue and len(batch) < MAX_BATCH_ANSWERS:
            if batch and nbytes + writer.queue[0].nbytes > MAX_BATCH_BYTES:
                return batch
            answer = writer.queue.popleft()
            if self._receipts.is_live(answer):
                batch.append(answer)
                nbytes += answer.nbytes
            else:
                self._receipts.dropped(answer)
        if not writer.queue:
            writer.waiting.clear()
        return batch

    async def _deliver(self, writer: _Writer, batch: Sequence[Answer]) -> None:
        """Send until the broker has it. Too large a batch is sent in halves, first half first.

        Raises:
            FatalError: it can never have it, or has not had it for the stall time-out. Then the
                next start says what is wrong with the topic, or goes on where this one ended.
        """
        failures, since_at = 0, self._clock()
        writer.sent_at = since_at
        try:
            while batch and not await self._try(writer, batch, failures):
                failures += 1
                self._metrics.add(m.PRODUCE_RETRIES, 1, writer.target[0])
                if self._clock() - since_at > self._give_up_s:
                    raise FatalError(
                        f"topic {writer.target[0]!r} has taken no answer for {self._give_up_s:g} s "
                        "(lifecycle.stall_timeout_ms): does it exist, and has it a leader?"
                    )
                await asyncio.sleep(BACKOFF.pause_s(failures))
                batch = self._only_live(batch)
        finally:
            writer.sent_at = None

    def _only_live(self, batch: Sequence[Answer]) -> list[Answer]:
        live: list[Answer] = []
        for answer in batch:
            if self._receipts.is_live(answer):
                live.append(answer)
            else:
                self._receipts.dropped(answer)
        return live

    async def _try(self, writer: _Writer, batch: Sequence[Answer], attempt: int) -> bool:
        """One attempt. False when another may succeed."""
        target = writer.target
        try:
            await self._send(target, batch)
        except _TOO_LARGE as error:
            await self._split(writer, batch, error)
        except (TimeoutError, KafkaTimeoutError) as error:
            self._log.warning(
                "produce_timed_out", topic=target[0], attempt=attempt, error=str(error)
            )
            return False
        except KafkaError as error:
            if not error.retriable:
                raise FatalError(f"cannot produce to {target[0]!r}: {error}") from error
            self._log.warning("produce_failed", topic=target[0], attempt=attempt, error=str(error))
            return False
        else:
            for answer in batch:
                self._receipts.acknowledged(answer)
        return True

    async def _send(self, target: OutputPartition, batch: Sequence[Answer]) -> None:
        topic, partition = target
        producer = self._producer
        if producer is None:
            raise RuntimeError("the sink was not started")
        builder = producer.create_batch()
        for answer in batch:
            added = builder.append(
                timestamp=None, key=answer.key, value=answer.value, headers=list(answer.headers)
            )
            if added is None:
                raise RuntimeError(f"{len(batch)} answers do not fit the producer's batch")
        # An open batch lingers for company, and ours is complete.
        builder.close()
        async with asyncio.timeout(self._timeout_s):
            await (await producer.send_batch(builder, topic, partition=partition))

    async def _split(self, writer: _Writer, batch: Sequence[Answer], error: KafkaError) -> None:
        target = writer.target
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._deliver(writer, batch[:middle])
            await self._deliver(writer, batch[middle:])
            return
        answer = batch[0]
        if answer.is_dead_letter:
            raise FatalError(
                f"the broker refuses a dead letter of {answer.nbytes} bytes on {target[0]!r}: give "
                "the topic a max.message.bytes of its input topic's plus 64 KiB"
            ) from error
        detail = f"the broker refuses a result of {answer.nbytes} bytes on {target[0]!r}"
        poison = PoisonError(Reason.RESULT_TOO_LARGE, detail, stage="result")
        self.put(self._receipts.too_large(answer, poison))
