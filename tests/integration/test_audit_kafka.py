"""`frameloom audit` where it takes a real Kafka: transactions, and records that were removed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import RecordsToDelete

from frameloom.audit import AuditPlan, Progress, Through, audit
from frameloom.audit_marks import OffsetRange
from frameloom.audit_report import Report
from frameloom.scan import Isolation
from tests.integration.answers import Answered, answer, result_of
from tests.integration.kit import DEADLINE_S, Bench, Sent, Unique, a_bench, envelope
from workers.kafka_clients import TopicPartition, make_admin, start_client, stop_client

pytestmark = pytest.mark.broker


@asynccontextmanager
async def a_transaction(bench: Bench) -> AsyncIterator[AIOKafkaProducer]:
    """A producer inside a transaction; committed at the end unless it was ended inside."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bench.kafka.bootstrap_servers, transactional_id=uuid.uuid4().hex
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        yield producer
    finally:
        await producer.stop()


async def run(
    bench: Bench,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    begins: dict[int, int] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    route = bench.route
    plan = AuditPlan(
        kafka=bench.kafka,
        input=route.input,
        output=route.output,
        dead_letter=route.dead_letter,
        through=Through.END,
        isolation=isolation,
        begins=begins or {},
    )
    return await audit(plan, progress)


async def remove_before(bench: Bench, topic: str, offset: int) -> None:
    """What retention does."""
    admin = make_admin(bench.kafka)
    await start_client(admin, bench.kafka)
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(offset)})
    finally:
        await stop_client(admin)


async def test_answers_of_aborted_transactions_count_only_when_asked(
    real_kafka: str, unique: Unique
) -> None:
    bench = await a_bench(real_kafka, unique)
    await bench.send(Sent(envelope("cam", 0)))
    async with a_transaction(bench) as producer:
        await producer.send_and_wait(bench.route.output, result_of(bench, Answered(0)), b"cam")
        await producer.abort_transaction()
    await answer(bench, Answered(0))

    assert (await run(bench)).clean(allow_duplicates=False)
    assert (await run(bench, isolation=Isolation.UNCOMMITTED)).total.duplicate == 1


async def test_transaction_markers_are_neither_records_nor_answers(
    real_kafka: str, unique: Unique
) -> None:
    """A log that ends with a marker: its end is one more than its records."""
    bench = await a_bench(real_kafka, unique)
    for seq in range(2):
        async with a_transaction(bench) as producer:
            await producer.send_and_wait(bench.route.input, envelope("cam", seq), b"cam")
            await producer.commit_transaction()
    async with a_transaction(bench) as producer:
        for offset in (0, 2):
            value = result_of(bench, Answered(offset))
            await producer.send_and_wait(bench.route.output, value, b"cam")
        await producer.commit_transaction()

    report = await run(bench)
    assert report.ranges == {0: OffsetRange(0, 4)}
    assert (report.total.received, report.total.ok, report.unknown.count) == (2, 2, 0)


async def test_an_open_transaction_is_waited_for(real_kafka: str, unique: Unique) -> None:
    """Offsets may be visible a moment before the results that were committed with them."""
    bench = await a_bench(real_kafka, unique)
    await bench.send(Sent(envelope("cam", 0)))
    reading = asyncio.Event()

    def tell(step: Progress) -> None:
        if step.topic == bench.route.output:
            reading.set()

    async with a_transaction(bench) as producer:
        await producer.send_and_wait(bench.route.output, result_of(bench, Answered(0)), b"cam")
        async with asyncio.timeout(DEADLINE_S):
            auditing = asyncio.ensure_future(run(bench, progress=tell))
            await reading.wait()
            await producer.commit_transaction()
            report = await auditing

    assert report.clean(allow_duplicates=False)
    assert report.total.ok == 1


async def test_records_that_were_removed_are_outside_or_unknown(
    real_kafka: str, unique: Unique
) -> None:
    bench = await a_bench(real_kafka, unique)
    await bench.send(*(Sent(envelope("cam", seq)) for seq in range(4)))
    await answer(bench, *(Answered(offset) for offset in range(4)))
    await remove_before(bench, bench.route.input, 3)

    default, named = await run(bench), await run(bench, begins={0: 1})

    assert (default.total.received, default.outside, default.unknown.count) == (1, 3, 0)
    assert (named.total.received, named.outside, named.unknown.count) == (1, 1, 2)


async def test_answers_that_were_removed_are_noted(real_kafka: str, unique: Unique) -> None:
    bench = await a_bench(real_kafka, unique)
    await bench.send(*(Sent(envelope("cam", seq)) for seq in range(3)))
    await answer(bench, *(Answered(offset) for offset in range(3)))
    await remove_before(bench, bench.route.output, 2)

    report = await run(bench)
    assert report.total.lost == 2
    assert report.notes[0].startswith(f"{bench.route.output}/0 begins at offset 2")
