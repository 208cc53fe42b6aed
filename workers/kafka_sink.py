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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka.errors import KafkaTimeoutError

from pipeline import metrics as m
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from pipeline.retry import Backoff
from schemas.errors import FatalError
from schemas.settings import KafkaSettings, Settings
from workers.kafka_clients import (
    AIOKafkaProducer,
    KafkaError,
    make_producer,
    start_client,
    stop_client,
)
from workers.kafka_outputs import (
    MAX_BATCH_ANSWERS,
    MAX_BATCH_BYTES,
    TOO_LARGE,
    Blocked,
    OutputPartition,
    Outputs,
    Receipts,
    as_poison,
    send,
)
from workers.logs import Log
from workers.tasks import Spawn
from workers.tickets import Answer

BACKOFF = Backoff(first_s=0.2, longest_s=5.0, random=random.random)


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
        self._receipts = receipts
        self._metrics = metrics
        self._log = log
        self._outputs = Outputs(topics)
        self._writers: dict[OutputPartition, _Writer] = {}
        self._spawn = spawn
        self._clock = clock
        self._blocked = Blocked(topics, metrics, log)
        self._producer: AIOKafkaProducer | None = None

    @property
    def blocked(self) -> Mapping[str, float]:
        """Topics whose answers do not get through, and for how many seconds, as `gauge` found it.
        Any thread may ask."""
        return self._blocked.seconds

    def gauge(self) -> None:
        """Look how long answers have waited, and say so."""
        now, longest = self._clock(), dict[str, float]()
        for (topic, _), writer in self._writers.items():
            if writer.sent_at is not None:
                longest[topic] = max(longest.get(topic, 0.0), now - writer.sent_at)
        self._blocked.look(longest)

    async def start(self) -> None:
        """Connect and learn each topic's partitions.

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
        await self._outputs.learn(producer, self._timeout_s)

    def put(self, answer: Answer) -> None:
        """Queue an answer. Never blocks. Answers with one key leave in the order they are put."""
        target = self._outputs.of(answer)
        writer = self._writers.get(target)
        if writer is None:
            writer = self._writers[target] = _Writer(target)
            self._spawn(self._write(writer), f"sink {target[0]}/{target[1]}")
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
        queue, is_live, nbytes = writer.queue, self._receipts.is_live, 0
        while queue and len(batch) < MAX_BATCH_ANSWERS:
            answer = queue[0]
            nbytes += answer.nbytes
            if batch and nbytes > MAX_BATCH_BYTES:
                return batch
            queue.popleft()
            if is_live(answer):
                batch.append(answer)
            else:
                nbytes -= answer.nbytes
                self._receipts.dropped(answer)
        if not queue:
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
        except TOO_LARGE as error:
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
            self._receipts.acknowledged(batch)
        return True

    async def _send(self, target: OutputPartition, batch: Sequence[Answer]) -> None:
        if self._producer is None:
            raise RuntimeError("the sink was not started")
        async with asyncio.timeout(self._timeout_s):
            await (await send(self._producer, target, batch))

    async def _split(self, writer: _Writer, batch: Sequence[Answer], error: KafkaError) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._deliver(writer, batch[:middle])
            await self._deliver(writer, batch[middle:])
            return
        poison = as_poison(batch[0], error)
        self.put(self._receipts.too_large(batch[0], poison))
