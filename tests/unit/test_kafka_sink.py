"""The sink against a broker that answers by script: order, retries, sizes, lost epochs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from hypothesis import given
from hypothesis import strategies as st

from pipeline import metrics as m
from pipeline.item import Coordinates
from pipeline.metrics import Metrics
from pipeline.retry import Backoff
from schemas.errors import FatalError, PoisonError, Reason
from schemas.record import RawRecord
from schemas.result import Status
from schemas.settings import DeliverySettings, Settings
from tests.fakes.clock import VirtualClock
from tests.fakes.producer import FakeProducer, LostError
from workers import kafka_sink
from workers.kafka_outputs import BLOCKED_AFTER_S, Receipts
from workers.kafka_sink import KafkaSink
from workers.logs import get_log
from workers.tasks import Tasks
from workers.tickets import Answer, Ticket

OUT, DLQ = "out", "dlq"
WAIT_S = 180.0


def an_answer(
    offset: int,
    *,
    key: bytes | None = b"cam",
    topic: str = OUT,
    epoch: int = 1,
    verdict: Status | Reason = Status.OK,
    partition: int = 0,
) -> Answer:
    record = RawRecord("in", partition, offset, key, b"frame", 0)
    at = (record.topic, record.partition)
    coordinates = Coordinates(*at, record.offset)
    ticket = Ticket(record, at, coordinates, epoch, "default", received_at=0.0, nbytes=5)
    return Answer(ticket, topic, key, str(offset).encode(), (), verdict, ready_at=0.0)


class Desk:
    """A running sink and everything that it reports."""

    def __init__(self, producer: FakeProducer, timeout_ms: int, partitions: int) -> None:
        self.acknowledged: list[int] = []
        self.dropped: list[int] = []
        self.live_epochs = {1}
        self.errors: asyncio.Queue[FatalError] = asyncio.Queue()
        self.changed = asyncio.Event()
        self.metrics = Metrics()
        self.clock = VirtualClock()
        self.tasks = Tasks(self.errors.put_nowait, get_log("test"))
        self.producer = producer
        settings = Settings(delivery=DeliverySettings(produce_timeout_ms=timeout_ms))
        receipts = Receipts(
            is_live=lambda answer: answer.ticket.epoch in self.live_epochs,
            acknowledged=lambda answers: self._note(self.acknowledged, *answers),
            dropped=lambda answer: self._note(self.dropped, answer),
            too_large=self._too_large,
        )
        self.sink = KafkaSink(
            settings, [OUT, DLQ], receipts, self.metrics, get_log("test"), self.tasks.spawn,
            clock=self.clock,
        )  # fmt: skip
        self.sink._producer = producer
        self.sink._outputs._partitions = {OUT: list(range(partitions)), DLQ: [0, 1]}

    def _note(self, where: list[int], *answers: Answer) -> None:
        where += [answer.ticket.record.offset for answer in answers]
        self.changed.set()

    def _too_large(self, answer: Answer, error: PoisonError) -> Answer:
        return an_answer(answer.ticket.record.offset, topic=DLQ, verdict=error.code)

    def put(self, *answers: Answer) -> None:
        for answer in answers:
            self.sink.put(answer)

    async def settled(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.acknowledged) + len(self.dropped) < count:
                self.changed.clear()
                await self.changed.wait()

    def sent(self, topic: str = OUT, partition: int = 0) -> list[int]:
        return [int(value) for value in self.producer.log.get((topic, partition), []) if value]


@asynccontextmanager
async def a_desk(
    *script: Exception | None, timeout_ms: int = 60_000, partitions: int = 1
) -> AsyncIterator[Desk]:
    desk = Desk(FakeProducer(deque(script)), timeout_ms, partitions)
    try:
        yield desk
    finally:
        await desk.tasks.cancel()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "BACKOFF", Backoff(0.0, 0.0, lambda: 0.0))


async def test_answers_are_settled_when_the_broker_has_them_and_not_before() -> None:
    async with a_desk() as desk:
        desk.producer.hold = asyncio.Event()
        desk.put(an_answer(0))
        while not desk.producer.requests:
            await asyncio.sleep(0)
        assert desk.acknowledged == []
        desk.producer.hold.set()
        await desk.settled(1)
        assert desk.acknowledged == [0]


async def test_what_comes_during_a_request_leaves_as_one_batch_after_it() -> None:
    async with a_desk() as desk:
        desk.producer.hold = asyncio.Event()
        desk.put(an_answer(0))
        while not desk.producer.requests:
            await asyncio.sleep(0)
        desk.put(*(an_answer(offset) for offset in range(1, 10)))
        desk.producer.hold.set()
        await desk.settled(10)
        assert desk.producer.requests == 2
        assert desk.sent() == list(range(10))


@pytest.mark.parametrize(
    "error", [KafkaConnectionError(), NotEnoughReplicasError(), TimeoutError(), LostError()]
)
async def test_what_may_succeed_is_tried_again_and_never_overtaken(error: Exception) -> None:
    async with a_desk(error, error) as desk:
        desk.put(an_answer(0), an_answer(1))
        while not desk.producer.requests:
            await asyncio.sleep(0)
        desk.put(an_answer(2))
        await desk.settled(3)
        assert list(dict.fromkeys(desk.sent())) == [0, 1, 2]
        assert desk.acknowledged == [0, 1, 2]
        assert desk.metrics.value(m.PRODUCE_RETRIES, topic=OUT) == 2


async def test_a_broker_that_never_answers_is_given_up_after_the_deadline() -> None:
    async with a_desk(timeout_ms=20) as desk:
        desk.producer.hold = asyncio.Event()
        desk.put(an_answer(0))
        async with asyncio.timeout(WAIT_S):
            while desk.metrics.value(m.PRODUCE_RETRIES, topic=OUT) < 2:
                await asyncio.sleep(0.001)
        desk.producer.hold.set()
        await desk.settled(1)


async def test_a_topic_that_takes_nothing_is_named_until_it_does() -> None:
    async with a_desk() as desk:
        desk.producer.hold = asyncio.Event()
        desk.put(an_answer(0, topic=DLQ, verdict=Reason.BAD_HEADER))
        while not desk.producer.requests:
            await asyncio.sleep(0)
        desk.sink.gauge()
        assert (desk.sink.blocked, desk.metrics.value(m.ANSWERS_BLOCKED, topic=DLQ)) == ({}, 0.0)
        desk.clock.advance(BLOCKED_AFTER_S)
        desk.sink.gauge()
        assert desk.sink.blocked == {DLQ: BLOCKED_AFTER_S}
        assert desk.metrics.value(m.ANSWERS_BLOCKED, topic=DLQ) == BLOCKED_AFTER_S
        assert desk.metrics.value(m.ANSWERS_BLOCKED, topic=OUT) == 0.0
        desk.producer.hold.set()
        await desk.settled(1)
        desk.sink.gauge()
        assert (desk.sink.blocked, desk.metrics.value(m.ANSWERS_BLOCKED, topic=DLQ)) == ({}, 0.0)


async def test_a_topic_that_takes_nothing_for_the_stall_time_out_ends_the_worker() -> None:
    async with a_desk(*[KafkaConnectionError()] * 1_000) as desk:
        desk.put(an_answer(0))
        while desk.metrics.value(m.PRODUCE_RETRIES, topic=OUT) < 3:
            await asyncio.sleep(0)
        assert desk.errors.empty()
        desk.clock.advance(121.0)
        async with asyncio.timeout(WAIT_S):
            assert "'out' has taken no answer for 120 s" in str(await desk.errors.get())


async def test_what_can_never_succeed_ends_the_worker() -> None:
    async with a_desk(TopicAuthorizationFailedError(OUT)) as desk:
        desk.put(an_answer(0))
        error = await desk.errors.get()
        assert "'out'" in str(error)
        assert desk.acknowledged == []


async def test_a_batch_that_is_too_large_is_sent_in_halves_in_order() -> None:
    async with a_desk(MessageSizeTooLargeError()) as desk:
        desk.put(*(an_answer(offset) for offset in range(5)))
        await desk.settled(5)
        assert desk.sent() == [0, 1, 2, 3, 4]
        assert desk.producer.requests == 3


async def test_a_result_that_the_broker_refuses_becomes_a_dead_letter() -> None:
    async with a_desk(MessageSizeTooLargeError()) as desk:
        desk.put(an_answer(7))
        await desk.settled(1)
        assert (desk.sent(), desk.sent(DLQ, 1)) == ([], [7])


async def test_a_dead_letter_that_the_broker_refuses_ends_the_worker() -> None:
    async with a_desk(MessageSizeTooLargeError()) as desk:
        desk.put(an_answer(0, topic=DLQ, verdict=Reason.BAD_HEADER))
        assert "max.message.bytes" in str(await desk.errors.get())


async def test_answers_of_an_ended_epoch_are_dropped_also_between_attempts() -> None:
    async with a_desk(KafkaConnectionError()) as desk:
        desk.put(an_answer(0, epoch=9), an_answer(1))
        await desk.settled(2)
        assert (desk.sent(), desk.dropped) == ([1], [0])

    async with a_desk(*[KafkaConnectionError()] * 1_000) as desk:
        desk.put(an_answer(0))
        while desk.producer.requests < 2:
            await asyncio.sleep(0)
        desk.live_epochs.clear()
        await desk.settled(1)
        assert (desk.sent(), desk.dropped) == ([], [0])


async def test_a_key_has_one_partition_and_a_record_without_key_its_source_partition() -> None:
    async with a_desk(partitions=8) as desk:
        desk.put(*(an_answer(offset, key=b"a") for offset in range(20)))
        desk.put(an_answer(99, key=None, partition=5, topic=DLQ, verdict=Reason.EMPTY_RECORD))
        await desk.settled(21)
        assert [log for target, log in desk.producer.log.items() if target[0] == OUT] == [
            [str(offset).encode() for offset in range(20)]
        ]
        assert desk.sent(DLQ, 1) == [99]


async def test_batches_stay_below_the_usual_limit_of_brokers() -> None:
    async with a_desk() as desk:
        big = [with_value(an_answer(n), bytes(kafka_sink.MAX_BATCH_BYTES // 2)) for n in (1, 2, 3)]
        desk.put(*big)
        await desk.settled(3)
        assert desk.producer.requests == 3


def with_value(answer: Answer, value: bytes) -> Answer:
    return Answer(
        answer.ticket, answer.topic, answer.key, value, answer.headers, answer.verdict, 0.0
    )


FATES = st.sampled_from(
    [None, None, KafkaConnectionError(), LostError(), MessageSizeTooLargeError(), TimeoutError()]
)


@given(keys=st.lists(st.sampled_from(b"abc"), min_size=1, max_size=30), script=st.lists(FATES))
async def test_no_script_of_failures_loses_or_reorders_a_stream(
    keys: list[int], script: list[Exception | None]
) -> None:
    kafka_sink.BACKOFF = Backoff(0.0, 0.0, lambda: 0.0)
    async with a_desk(*script, partitions=2) as desk:
        desk.producer.takes_any_size = frozenset({DLQ})
        desk.put(*(an_answer(offset, key=bytes([key])) for offset, key in enumerate(keys)))
        await desk.settled(len(keys))
        assert sorted(desk.acknowledged) == list(range(len(keys)))
        dead = set(desk.sent(DLQ, 0) + desk.sent(DLQ, 1))
        for key in set(keys):
            mine = [offset for offset, k in enumerate(keys) if k == key and offset not in dead]
            for partition in (0, 1):
                sent = [o for o in desk.sent(OUT, partition) if keys[o] == key and o not in dead]
                if sent:
                    assert list(dict.fromkeys(sent)) == mine
