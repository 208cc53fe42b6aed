"""Exactly once on a real Kafka: a reader of committed records sees every answer once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter

import msgspec
import pytest
from aiokafka.errors import KafkaConnectionError
from structlog.testing import capture_logs

from pipeline import metrics as m
from pipeline.item import Coordinates
from schemas.codec import read_result
from schemas.errors import ConfigError, Reason
from schemas.settings import DeliverySettings, FlowSettings, Guarantee
from tests.assertions import each_once, in_offset_order
from tests.fakes.lane import FakeModel, a_lane
from tests.integration.exact import (
    ONCE,
    an_exact_bench,
    answers,
    origins,
    read_all,
    some_frames,
)
from tests.integration.kit import (
    DEADLINE_S,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    a_worker,
    envelope,
    fake_machinery,
    running,
    until,
)
from tests.rig.kafka import KafkaCluster
from workers.kafka_clients import (
    AIOKafkaProducer,
    TopicPartition,
    TopicSpec,
    create_topics,
    make_producer,
    start_client,
    stop_client,
)
from workers.kafka_transaction import Transaction
from workers.kafka_transactions import KafkaTransactions
from workers.lifecycle import WorkerState
from workers.worker import EXIT_CONFIG, Worker

pytestmark = pytest.mark.broker


async def settled(count: int, *workers: Worker) -> None:
    await until(
        lambda: (
            sum(w.metrics.total(m.ANSWERED) + w.metrics.total(m.DEAD_LETTERED) for w in workers)
            >= count
        )
    )


async def test_results_and_dead_letters_are_committed_once_with_their_offsets(
    real_kafka: str, unique: Unique
) -> None:
    bench = await an_exact_bench(real_kafka, unique, partitions=3)
    sent = await bench.send(*some_frames(300, partitions=3, bad_every=10))
    worker = a_worker(bench)
    async with running(worker):
        await settled(300, worker)
        each_once(await answers(bench), sent)
        assert [await bench.committed(p) for p in range(3)] == [100, 100, 100]
    results = [read_result(r.value) for r in await read_all(bench, bench.route.output)]
    in_offset_order(results)
    committed = worker.metrics.value(m.TRANSACTIONS, outcome="committed")
    assert 3 <= committed <= 300
    assert worker.metrics.value(m.TRANSACTION_SIZE) == committed
    assert worker.metrics.value(m.COMMITS, outcome="done") == 0, "only transactions move offsets"
    assert worker.metrics.value(m.IN_FLIGHT) == 0


async def test_a_second_run_goes_on_where_the_first_ended(real_kafka: str, unique: Unique) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    sent = await bench.send(*some_frames(400))
    # Held after 80 frames, and no more than 80 inside: there is work left when it is told.
    told = threading.Event()
    few = Bench(msgspec.structs.replace(bench.settings, flow=FlowSettings(max_items=80)))
    held = a_lane()
    assert isinstance(held.model, FakeModel)
    model = held.model
    model.before = lambda _: told.wait(DEADLINE_S) if sum(model.batch_sizes) >= 80 else None
    first = Worker(few.settings, fake_machinery(few.settings, held))
    async with running(first):
        await settled(40, first)
        first.request_stop()
        await until(lambda: first.state is WorkerState.DRAINING)
        told.set()
    second = a_worker(bench)
    async with running(second):
        await settled(400, first, second)
    each_once(await answers(bench, "read_uncommitted"), sent)
    assert first.metrics.total(m.RECEIVED) < 400, "the drain must come while there is work left"


async def test_a_transaction_that_fails_is_aborted_and_its_answers_are_sent_again(
    real_kafka: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    sent = await bench.send(*some_frames(60, bad_every=7))
    failures = 2
    put_in = Transaction.send

    async def then_fail(self: Transaction, *args: object) -> None:
        nonlocal failures
        await put_in(self, *args)
        if failures:
            failures -= 1
            raise KafkaConnectionError("cut off before the commit")

    monkeypatch.setattr(Transaction, "send", then_fail)
    worker = a_worker(bench)
    async with running(worker):
        await settled(60, worker)
        each_once(await answers(bench), sent)
        twice = Counter(await answers(bench, "read_uncommitted"))
    assert max(twice.values()) > 1, "the aborted answers are in the log, for those who read all"
    assert worker.metrics.value(m.TRANSACTIONS, outcome="aborted") == 2


async def test_a_commit_whose_answer_is_lost_is_not_done_again(
    real_kafka: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    sent = await bench.send(*some_frames(60))
    lost = 1
    commit = AIOKafkaProducer.commit_transaction

    async def commit_and_lose(self: AIOKafkaProducer) -> None:
        nonlocal lost
        await commit(self)
        if lost:
            lost -= 1
            raise TimeoutError

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", commit_and_lose)
    worker = a_worker(bench)
    async with running(worker):
        await settled(60, worker)
    each_once(await answers(bench, "read_uncommitted"), sent)
    assert worker.metrics.value(m.TRANSACTIONS, outcome="aborted") == 0


async def test_a_producer_that_hangs_in_its_commit_is_replaced(
    real_kafka: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = msgspec.structs.replace(ONCE, produce_timeout_ms=8_000)
    bench = await an_exact_bench(real_kafka, unique, delivery=delivery)
    sent = await bench.send(*some_frames(40))
    hanging = 1
    commit = AIOKafkaProducer.commit_transaction

    async def hang(self: AIOKafkaProducer) -> None:
        nonlocal hanging
        if hanging:
            hanging -= 1
            await asyncio.Event().wait()
        await commit(self)

    monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", hang)
    worker = a_worker(bench)
    async with running(worker):
        await settled(40, worker)
    each_once(await answers(bench), sent)
    assert worker.metrics.value(m.TRANSACTIONS, outcome="aborted") == 1


@pytest.mark.parametrize("guarantee", list(Guarantee))
async def test_a_result_that_the_broker_refuses_becomes_a_dead_letter_in_its_place(
    real_kafka: str, unique: Unique, guarantee: Guarantee
) -> None:
    delivery = DeliverySettings(guarantee=guarantee, commit_interval_ms=100)
    bench = await an_exact_bench(real_kafka, unique, delivery=delivery)
    small = unique("small")
    await create_topics(bench.kafka, [TopicSpec(small, configs={"max.message.bytes": "3000"})])
    route = msgspec.structs.replace(bench.route, output=small)
    bench = Bench(msgspec.structs.replace(bench.settings, routes=[route]))
    # Eight results of 600 bytes are too large for one batch; one with this note is for itself.
    frames = [*some_frames(8), Sent(noted("n" * 4_000), key=b"cam-1"), *some_frames(8)]
    sent = await bench.send(*frames)
    worker = a_worker(bench)
    async with running(worker):
        await settled(17, worker)
    each_once(await answers(bench), sent)
    (letter,) = await read_all(bench, bench.route.dead_letter)
    assert dict(letter.headers)["fl-reason"] == Reason.RESULT_TOO_LARGE.value.encode()
    assert origins([letter]) == [sent[8]]
    in_offset_order([read_result(r.value) for r in await read_all(bench, small)])
    assert await bench.committed() == 17, "committed at the end, if not before"


def noted(note: str) -> bytes:
    return envelope("cam-1", 99, meta={"note": note})


async def test_workers_that_come_and_go_answer_each_record_once(
    real_kafka: str, unique: Unique
) -> None:
    bench = await an_exact_bench(real_kafka, unique, partitions=4)
    sent: list[Coordinates] = []
    stop = asyncio.Event()

    async def produce() -> None:
        while not stop.is_set():
            sent.extend(await bench.send(*some_frames(40, partitions=4)))

    producing = asyncio.ensure_future(produce())
    first, second = a_worker(bench), a_worker(bench)
    async with running(first):
        await settled(20, first)
        async with running(second):
            await until(lambda: len(first.assigned) == len(second.assigned) == 2)
            await settled(20, second)
        await until(lambda: len(first.assigned) == 4)
        stop.set()
        await producing
        await settled(len(sent), first, second)
    each_once(await answers(bench), sent)


async def test_a_writer_that_is_fenced_gives_the_partition_up_and_claims_it_again(
    real_kafka: str, unique: Unique
) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    before = await bench.send(*some_frames(20))
    worker = a_worker(bench)
    async with running(worker):
        await settled(20, worker)
        usurper = make_producer(
            bench.kafka, transactional_id=f"{bench.kafka.group_id}/{bench.route.input}/0"
        )
        await start_client(usurper, bench.kafka)
        await stop_client(usurper)
        said: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        after = await bench.send(*some_frames(20))
        await settled(40, worker)
    each_once(await answers(bench), [*before, *after])
    gc.collect()
    assert said == [], "a failure that nobody looked at"
    assert worker.metrics.value(m.TRANSACTIONS, outcome="fenced") == 1
    assert worker.metrics.total(m.ABANDONED) > 0


async def test_a_setting_that_is_refused_at_a_later_claim_ends_the_worker_by_its_name(
    real_kafka: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    connect = KafkaTransactions._connected
    connected: list[str] = []

    async def then_refuse(self: KafkaTransactions, transactional_id: str) -> AIOKafkaProducer:
        connected.append(transactional_id)
        if len(connected) > 1:
            raise ConfigError("kafka.sasl_password: the broker refuses it")
        return await connect(self, transactional_id)

    monkeypatch.setattr(KafkaTransactions, "_connected", then_refuse)
    with capture_logs() as lines:
        assert await a_worker(bench).run() == EXIT_CONFIG
    (said,) = [line["error"] for line in lines if line["event"] == "worker_failed"]
    assert "kafka.sasl_password" in said


async def test_an_offset_that_another_moved_is_not_moved_back(
    real_kafka: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    sent = await bench.send(*some_frames(10))
    put_in = Transaction.send
    usurped = asyncio.Event()

    async def usurp(self: Transaction, *args: object) -> None:
        await put_in(self, *args)
        if usurped.is_set():
            return
        usurped.set()
        producer = make_producer(
            bench.kafka, transactional_id=f"{bench.kafka.group_id}/{bench.route.input}/0"
        )
        await start_client(producer, bench.kafka)
        await producer.begin_transaction()
        at = TopicPartition(bench.route.input, 0)
        await producer.send_offsets_to_transaction({at: 7}, bench.kafka.group_id)
        await producer.commit_transaction()
        await stop_client(producer)
        raise KafkaConnectionError("cut off")

    monkeypatch.setattr(Transaction, "send", usurp)
    worker = a_worker(bench)
    async with running(worker):
        await bench.until_committed(10)
    each_once(await answers(bench), sent[7:])
    assert await bench.committed() == 10


async def test_frames_of_aborted_transactions_are_not_answered(
    real_kafka: str, unique: Unique
) -> None:
    bench = await an_exact_bench(real_kafka, unique)
    kafka = msgspec.structs.replace(bench.kafka, isolation_level="read_committed")
    bench = Bench(
        msgspec.structs.replace(
            bench.settings,
            kafka=kafka,
            lifecycle=bench.settings.lifecycle,
        )
    )
    producer = make_producer(bench.kafka, transactional_id=unique("camera"))
    await start_client(producer, bench.kafka)
    kept: list[Coordinates] = []
    for n in range(6):
        await producer.begin_transaction()
        done = await producer.send_and_wait(bench.route.input, a_jpeg(), b"cam", partition=0)
        if n % 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
            kept.append(Coordinates(done.topic, done.partition, done.offset))
    await stop_client(producer)
    worker = a_worker(bench)
    async with running(worker):
        await settled(3, worker)
        each_once(await answers(bench), kept)
        assert worker._parts is not None
        source = worker._parts.source
        async with asyncio.timeout(DEADLINE_S):
            while await source.behind():
                await asyncio.sleep(0.05)


async def test_a_broker_that_is_killed_and_comes_back_changes_nothing(
    kafka_rig: KafkaCluster, unique: Unique
) -> None:
    bench = await an_exact_bench(kafka_rig.bootstrap_servers, unique, partitions=2)
    sent = await bench.send(*some_frames(200, partitions=2, bad_every=20))
    worker = a_worker(bench)
    (node,) = kafka_rig.nodes
    async with running(worker):
        await settled(20, worker)
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
        sent += await bench.send(*some_frames(50, partitions=2))
        await settled(250, worker)
        each_once(await answers(bench), sent)


async def test_a_broker_without_transactions_is_refused(
    embedded_broker: str, unique: Unique
) -> None:
    bench = await a_bench(embedded_broker, unique, delivery=ONCE)
    with capture_logs() as lines:
        assert await a_worker(bench).run() == EXIT_CONFIG
    (said,) = [line["error"] for line in lines if line["event"] == "worker_failed"]
    assert "delivery.guarantee = exactly_once" in said
    assert "InitProducerId" in said
