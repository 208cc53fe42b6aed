"""The writer of one input partition: its answers, in order, each in exactly one transaction.

Why it is safe. The partition has one `transactional.id`. A writer begins by starting a producer of
that id: the broker fences every earlier one and aborts what it left open. Then it reads the
group's offset, and from then on it answers from exactly there. So each of its transactions moves
the offset from where it found it, under a producer that nobody has fenced since: compare and
swap. Whoever else believes to own the partition can only do the same, and then this writer is
fenced. Group membership decides who should write; it is not what keeps answers from being doubled.

After any failure the writer starts a new producer and asks for the offset once more. It says what
became of the transaction: moved, it was committed; not moved, the same answers are sent again;
anything else, another writer was here in between, and what is left is that one's work.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from pipeline import metrics as m
from pipeline.ledger import PartitionId
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from pipeline.retry import Backoff
from schemas.errors import FatalError, TransientError
from workers.kafka_clients import AIOKafkaProducer, KafkaError, stop_client
from workers.kafka_outputs import Outputs, Receipts, as_poison
from workers.kafka_transaction import (
    FENCED,
    WRONG_STATE,
    AnswerTooLargeError,
    BatchTooLargeError,
    Transaction,
)
from workers.logs import Log
from workers.prefix import Prefix
from workers.tickets import Answer
from workers.writer_state import WriterState, step

MAX_TRANSACTION_BYTES = 8 * 1024 * 1024
"""Most bytes of answers in one transaction, unless one answer alone is larger."""
BACKOFF = Backoff(first_s=0.2, longest_s=5.0, random=random.random)
ABORT_TIMEOUT_S = 2.0

_REFUSED = (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)
"""What no further attempt will change."""


@dataclass(frozen=True, slots=True)
class Ties:
    """What a writer asks of the rest of the worker.

    Attributes:
        committed: the group's offset of the partition, or None when it has none. KafkaError or
            TimeoutError when the broker does not say.
        admit: take records in, from this offset on (None: from where the group begins).
        lost: another worker has the partition: give up what is unsettled of it.
        receipts: see `Receipts`.
    """

    committed: Callable[[PartitionId], Awaitable[int | None]]
    admit: Callable[[PartitionId, int | None], Awaitable[None]]
    lost: Callable[[PartitionId], None]
    receipts: Receipts


@dataclass(frozen=True, slots=True)
class Pace:
    """Bounds of one writer's transactions.

    Attributes:
        group: whose offset they move.
        max_answers: most answers of one.
        interval_s: least time from the begin of one to the begin of the next.
        timeout_s: how long one may take.
        give_up_s: how long the same answers may fail to leave before the worker ends.
        lost_pause_s: how long a fenced writer waits before it claims the partition again: long
            enough for the group to tell this worker that the partition is another's.
    """

    group: str
    max_answers: int
    interval_s: float
    timeout_s: float
    give_up_s: float
    lost_pause_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """What the writers of one worker share.

    Attributes:
        connect: a started producer of this partition, which fences every earlier one.
            TransientError when it does not start.
        outputs: where answers go.
        pace: see `Pace`.
    """

    connect: Callable[[PartitionId], Awaitable[AIOKafkaProducer]]
    outputs: Outputs
    pace: Pace


class PartitionWriter:
    """Writes one partition's answers. Belongs to the event loop's thread.

    Args:
        partition: the input partition.
        line, ties: see there.
        metrics, log: for transactions.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        partition: PartitionId,
        line: Line,
        ties: Ties,
        metrics: Metrics,
        log: Log,
        clock: Clock,
    ) -> None:
        self._partition = partition
        self._connect = line.connect
        self._outputs = line.outputs
        self._pace = line.pace
        self._ties = ties
        self._metrics = metrics
        self._log = log.bind(partition=f"{partition[0]}/{partition[1]}")
        self._clock = clock
        self._prefix = Prefix()
        self._waiting = asyncio.Event()
        self._state = WriterState.CLAIMING
        self._producer: AIOKafkaProducer | None = None
        self._offset: int | None = None
        self._alone = False
        self._sent_at: float | None = None

    @property
    def state(self) -> WriterState:
        return self._state

    def waited_s(self, now: float) -> dict[str, float]:
        """How long the first answers have tried to leave, by output topic."""
        if self._sent_at is None:
            return {}
        answers = self._prefix.head(self._pace.max_answers, MAX_TRANSACTION_BYTES)
        return dict.fromkeys((answer.topic for answer in answers), now - self._sent_at)

    def put(self, answer: Answer) -> None:
        """The partition's next answer. Never blocks."""
        self._prefix.put(answer)
        self._waiting.set()

    async def run(self) -> None:
        """Claim the partition and write until cancelled; claim it anew when it was lost.

        Raises:
            FatalError: the broker refuses this worker for good.
        """
        try:
            while True:
                self._offset = await self._claim()
                self._enter(WriterState.READY)
                await self._ties.admit(self._partition, self._offset)
                await self._write()
                await self._disconnect(abort=False)
                self._give_up()
                await asyncio.sleep(self._pace.lost_pause_s)
                self._enter(WriterState.CLAIMING)
        finally:
            await self._disconnect(abort=self._state is WriterState.SENDING)
            self._enter(WriterState.CLOSED)
            self._drop(lambda _: False)

    async def _write(self) -> None:
        """Transaction after transaction, until one shows that the partition is another's."""
        while self._state is WriterState.READY:
            await self._waiting.wait()
            self._drop(self._ties.receipts.is_live)
            answers = self._prefix.head(self._pace.max_answers, MAX_TRANSACTION_BYTES)
            if not answers:
                self._waiting.clear()
                continue
            begun_at = self._clock()
            await self._transact(Transaction(self._partition, answers, self._alone))
            if self._state is WriterState.READY:
                await asyncio.sleep(max(0.0, begun_at + self._pace.interval_s - self._clock()))

    async def _transact(self, transaction: Transaction) -> None:
        """One transaction, to its end: committed, to be tried again, or lost."""
        begun_at = self._clock()
        self._sent_at = begun_at if self._sent_at is None else self._sent_at
        try:
            async with asyncio.timeout(self._pace.timeout_s):
                await self._attempt(transaction)
        except FENCED as error:
            self._metrics.add(m.TRANSACTIONS, 1, "fenced")
            self._log.warning("transaction_fenced", error=str(error))
            self._enter(WriterState.LOST)
            return
        except AnswerTooLargeError as error:
            letter = self._ties.receipts.too_large(
                error.answer, as_poison(error.answer, error.error)
            )
            self._prefix.replace(error.answer, letter)
            await self._recover(transaction, error)
        except (BatchTooLargeError, TimeoutError, KafkaError, *WRONG_STATE) as error:
            if isinstance(error, _REFUSED):
                raise FatalError(f"cannot write a transaction: {error}") from error
            self._alone = self._alone or isinstance(error, BatchTooLargeError)
            await self._recover(transaction, error)
        else:
            self._committed(transaction)
            self._metrics.observe(m.TRANSACTION_SECONDS, self._clock() - begun_at)

    async def _attempt(self, transaction: Transaction) -> None:
        producer = self._producer
        if producer is None:
            raise RuntimeError("the writer has no producer")

        self._enter(WriterState.SENDING)
        await transaction.send(producer, self._outputs, self._pace.group)
        self._enter(WriterState.COMMITTING)
        await producer.commit_transaction()

    def _committed(self, transaction: Transaction) -> None:
        self._enter(WriterState.READY)
        self._alone, self._sent_at = False, None
        self._offset = transaction.offset
        self._prefix.committed(transaction.answers)
        self._ties.receipts.acknowledged(transaction.answers)
        self._metrics.add(m.TRANSACTIONS, 1, "committed")
        self._metrics.observe(m.TRANSACTION_SIZE, len(transaction.answers))

    async def _recover(self, transaction: Transaction, error: Exception) -> None:
        """Find out what became of a transaction that failed."""
        failed_in = self._state
        self._log.warning(
            "transaction_failed",
            state=failed_in.value,
            kind=type(error).__name__,
            error=str(error),
        )
        await self._disconnect(abort=failed_in is WriterState.SENDING)
        self._enter(WriterState.RECOVERING)
        offset = await self._claim()
        if offset == transaction.offset and failed_in is WriterState.COMMITTING:
            self._log.info("transaction_was_committed", offset=offset)
            self._committed(transaction)
        elif offset == self._offset:
            self._check_patience()
            self._metrics.add(m.TRANSACTIONS, 1, "aborted")
            self._enter(WriterState.READY)
        else:
            self._metrics.add(m.TRANSACTIONS, 1, "fenced")
            self._log.warning("offset_moved_by_another", found=offset, expected=self._offset)
            self._enter(WriterState.LOST)

    async def _claim(self) -> int | None:
        """Start a producer, which fences every earlier one, then read the group's offset. Tries
        until it succeeds."""
        failures = 0
        while True:
            try:
                self._producer = await self._connect(self._partition)
                return await self._ties.committed(self._partition)
            except (TimeoutError, TransientError, KafkaError) as error:
                cause = error.__cause__ if isinstance(error, TransientError) else error
                if isinstance(cause, _REFUSED):
                    raise FatalError(f"cannot claim the partition: {cause}") from error
                self._log.warning("claim_failed", failures=failures, error=str(error))
            await self._disconnect(abort=False)
            self._check_patience()
            failures += 1
            await asyncio.sleep(BACKOFF.pause_s(failures))

    async def _disconnect(self, *, abort: bool) -> None:
        """Let the producer go. `abort` ends its transaction first, so that readers of committed
        records need not wait for the next producer of this partition to do it."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if abort:
            with contextlib.suppress(TimeoutError, KafkaError, *WRONG_STATE):
                async with asyncio.timeout(ABORT_TIMEOUT_S):
                    await producer.abort_transaction()
        if not await stop_client(producer):
            self._log.warning("producer_stop_timed_out")

    def _check_patience(self) -> None:
        if self._sent_at is not None and self._clock() - self._sent_at > self._pace.give_up_s:
            raise FatalError(
                f"no transaction of {self._partition[0]}/{self._partition[1]} has succeeded for "
                f"{self._pace.give_up_s:g} s (lifecycle.stall_timeout_ms)"
            )

    def _give_up(self) -> None:
        self._sent_at = None
        self._ties.lost(self._partition)
        self._drop(lambda _: False)

    def _drop(self, is_live: Callable[[Answer], bool]) -> None:
        for answer in self._prefix.prune(is_live):
            self._ties.receipts.dropped(answer)

    def _enter(self, state: WriterState) -> None:
        self._state = step(self._state, state)
