"""One attempt at one transaction: answers and offset go in together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from aiokafka.errors import IllegalOperation, InvalidProducerEpoch, ProducerFenced

from pipeline.ledger import PartitionId
from workers.kafka_clients import AIOKafkaProducer, KafkaError, TopicPartition
from workers.kafka_outputs import (
    MAX_BATCH_ANSWERS,
    MAX_BATCH_BYTES,
    TOO_LARGE,
    OutputPartition,
    Outputs,
    send,
)
from workers.prefix import next_offset
from workers.tickets import Answer

FENCED = (ProducerFenced, InvalidProducerEpoch)
"""A later producer has the transactional id, or the broker aborted the transaction for its age."""


WRONG_STATE = (IllegalOperation, AssertionError)
"""What the library raises when its producer failed in the background and is asked to go on: it
asserts its states."""


class AnswerTooLargeError(Exception):
    """The broker finds one answer too large.

    Attributes:
        answer: which.
        error: what the broker said.
    """

    def __init__(self, answer: Answer, error: KafkaError) -> None:
        super().__init__(str(error))
        self.answer = answer
        self.error = error


class BatchTooLargeError(Exception):
    """The broker finds a batch of several answers too large: send them one by one."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What belongs together.

    Attributes:
        partition: the input partition.
        answers: the beginning of its prefix, at least one.
        alone: send each answer in a batch of its own.
    """

    partition: PartitionId
    answers: Sequence[Answer]
    alone: bool = False

    @property
    def offset(self) -> int:
        """The group's offset once it is committed."""
        return next_offset(self.answers)

    async def send(self, producer: AIOKafkaProducer, outputs: Outputs, group: str) -> None:
        """Begin, and put everything in: after this, only the commit is missing. May hang, and needs
        the caller's deadline.

        Args:
            producer: transactional, with no transaction open.
            outputs: where each answer goes.
            group: whose offset it moves.

        Raises:
            AnswerTooLargeError, BatchTooLargeError: nothing of this size can succeed.
            KafkaError and `WRONG_STATE`: anything else; the transaction must be aborted.
        """
        await producer.begin_transaction()
        # Every future is awaited, whatever the others say: the library commits a transaction of
        # which a produce request failed, if nobody looked at its future.
        sent = await asyncio.gather(
            *(
                self._send_to(producer, target, answers)
                for target, answers in self._by_target(outputs).items()
            ),
            return_exceptions=True,
        )
        failures = [each for each in sent if each is not None]
        if failures:
            raise min(failures, key=_severity)
        offsets = {TopicPartition(*self.partition): self.offset}
        await producer.send_offsets_to_transaction(offsets, group)

    def _by_target(self, outputs: Outputs) -> dict[OutputPartition, list[Answer]]:
        by_target: dict[OutputPartition, list[Answer]] = {}
        for answer in self.answers:
            by_target.setdefault(outputs.of(answer), []).append(answer)
        return by_target

    async def _send_to(
        self, producer: AIOKafkaProducer, target: OutputPartition, answers: Sequence[Answer]
    ) -> None:
        for batch in _batches(answers, 1 if self.alone else MAX_BATCH_ANSWERS):
            try:
                acknowledged: Awaitable[object] = await send(producer, target, batch)
                await acknowledged
            except TOO_LARGE as error:
                if len(batch) > 1:
                    raise BatchTooLargeError from error
                raise AnswerTooLargeError(batch[0], error) from error


def _batches(answers: Sequence[Answer], max_answers: int) -> list[list[Answer]]:
    batches: list[list[Answer]] = []
    nbytes = 0
    for answer in answers:
        full = not batches or len(batches[-1]) >= max_answers
        if full or nbytes + answer.nbytes > MAX_BATCH_BYTES:
            batches.append([])
            nbytes = 0
        batches[-1].append(answer)
        nbytes += answer.nbytes
    return batches


def _severity(error: BaseException) -> int:
    """Which of several failures decides: least first. A batch after one that was too large fails
    by its sequence number, which says nothing."""
    if isinstance(error, FENCED):
        return 1
    if isinstance(error, AnswerTooLargeError | BatchTooLargeError):
        return 2
    if isinstance(error, KafkaError):
        return 3
    # What is no error of Kafka's is a bug, and must not hide behind one.
    return 4 if isinstance(error, WRONG_STATE) else 0
