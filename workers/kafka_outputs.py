"""What both sinks share: where an answer goes, how a batch is sent, who is told of its fate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.partitioner import DefaultPartitioner

from pipeline import metrics as m
from pipeline.metrics import Metrics
from schemas.errors import FatalError, PoisonError, Reason, TransientError
from workers.kafka_clients import AIOKafkaProducer, KafkaError
from workers.logs import Log
from workers.tickets import Answer

MAX_BATCH_BYTES = 512 * 1024
"""Most bytes in one batch, unless one answer alone is larger: brokers limit a batch, not only a
record, and their default limit is 1 MiB."""
MAX_BATCH_ANSWERS = 500

MAX_KNOWN_KEYS = 10_000
"""Keys whose partition is remembered."""

BLOCKED_AFTER_S = 10.0
"""A topic whose answers wait longer than this for an acknowledgement counts as blocked."""

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)

OutputPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Receipts:
    """Whom the sink tells what became of an answer.

    Attributes:
        is_live: whether the answer is still this worker's to send; asked right before sending.
        acknowledged: the broker has them.
        dropped: it was not sent, because it is not live.
        too_large: the broker refuses its size; returns the dead letter to send instead.
    """

    is_live: Callable[[Answer], bool]
    acknowledged: Callable[[Sequence[Answer]], None]
    dropped: Callable[[Answer], None]
    too_large: Callable[[Answer, PoisonError], Answer]


class Outputs:
    """The partition of every output topic that an answer belongs on.

    Args:
        topics: every output and dead-letter topic.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = tuple(dict.fromkeys(topics))
        self._partition = DefaultPartitioner()
        self._partitions: dict[str, list[int]] = {}
        self._known: dict[tuple[str, bytes], OutputPartition] = {}

    async def learn(self, producer: AIOKafkaProducer, timeout_s: float) -> None:
        """Ask for each topic's partitions, at most `timeout_s` per topic. They are learned once: a
        topic that grows would move keys to other partitions and break their order, so it takes a
        restart.

        Raises:
            TransientError: a topic has no partitions to be had.
        """
        for topic in self._topics:
            try:
                async with asyncio.timeout(timeout_s):
                    self._partitions[topic] = sorted(await producer.partitions_for(topic))
            except (TimeoutError, KafkaError) as error:
                raise TransientError(f"topic {topic!r} has no partitions: {error}") from error

    def of(self, answer: Answer) -> OutputPartition:
        """Answers with one key go to one partition."""
        partitions = self._partitions[answer.topic]
        if answer.key is None:
            # A dead letter without a key: its source partition keeps its neighbours together.
            return answer.topic, partitions[answer.ticket.record.partition % len(partitions)]
        # The library hashes keys in Python: more than the rest of an answer's way costs.
        at = (answer.topic, answer.key)
        known = self._known.get(at)
        if known is None:
            if len(self._known) >= MAX_KNOWN_KEYS:
                self._known.clear()
            partition = self._partition(answer.key, partitions, partitions)
            known = self._known[at] = (answer.topic, partition)
        return known


class Blocked:
    """Topics whose answers do not get through. Written by the event loop's thread.

    Args:
        topics: every output and dead-letter topic.
        metrics, log: where it is said.
    """

    def __init__(self, topics: Iterable[str], metrics: Metrics, log: Log) -> None:
        self._topics = tuple(dict.fromkeys(topics))
        self._metrics = metrics
        self._log = log
        self.seconds: Mapping[str, float] = {}
        """For how many seconds, by topic. Any thread may read it."""

    def look(self, waited_s: Mapping[str, float]) -> None:
        """How long answers have waited for their acknowledgement now, by topic."""
        blocked = {topic: s for topic, s in waited_s.items() if s >= BLOCKED_AFTER_S}
        for topic in self._topics:
            self._metrics.set(m.ANSWERS_BLOCKED, blocked.get(topic, 0.0), topic)
        for topic in blocked.keys() ^ self.seconds.keys():
            self._log.warning(
                "answers_blocked" if topic in blocked else "answers_flow", topic=topic
            )
        self.seconds = blocked


async def send(
    producer: AIOKafkaProducer, target: OutputPartition, batch: Sequence[Answer]
) -> Awaitable[object]:
    """Hand one batch to the producer; what it returns ends when the broker has it. Both waits may
    hang, and need the caller's deadline.

    Raises:
        RuntimeError: the answers do not fit one batch of this producer.
        KafkaError: see the library's `send_batch`.
    """
    topic, partition = target
    builder = producer.create_batch()
    for answer in batch:
        added = builder.append(
            timestamp=None, key=answer.key, value=answer.value, headers=list(answer.headers)
        )
        if added is None:
            raise RuntimeError(f"{len(batch)} answers do not fit the producer's batch")
    # An open batch lingers for company, and ours is complete.
    builder.close()
    return await producer.send_batch(builder, topic, partition=partition)


def as_poison(answer: Answer, error: KafkaError) -> PoisonError:
    """Why a result that the broker finds too large becomes a dead letter.

    Raises:
        FatalError: it is a dead letter already.
    """
    if answer.is_dead_letter:
        raise FatalError(
            f"the broker refuses a dead letter of {answer.nbytes} bytes on {answer.topic!r}: give "
            "the topic a max.message.bytes of its input topic's plus 64 KiB"
        ) from error
    detail = f"the broker refuses a result of {answer.nbytes} bytes on {answer.topic!r}"
    return PoisonError(Reason.RESULT_TOO_LARGE, detail, stage="result")
