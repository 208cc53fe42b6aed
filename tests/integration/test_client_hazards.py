"""The ways in which the Kafka library hangs or goes wrong, provoked on a real broker.

The oracle is always the same: nothing is lost, no committed offset ever moves back, a worker that
cannot go on ends with code 1, and the next one takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pipeline import metrics as m
from pipeline.item import Coordinates
from schemas.settings import (
    DeliverySettings,
    Guarantee,
    KafkaSettings,
    LifecycleSettings,
)
from tests.assertions import each_once, in_offset_order, none_lost
from tests.fakes.engine import MODEL, ScriptedEngine
from tests.integration.kit import (
    DEADLINE_S,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    a_worker,
    running,
    sources,
    until,
)
from tests.rig.kafka import KafkaCluster
from tests.rig.proxy import Proxy
from workers import kafka_commit, kafka_source
from workers.assembly import Machinery
from workers.kafka_clients import (
    AIOKafkaProducer,
    TopicPartition,
    make_consumer,
    start_client,
    stop_client,
)
from workers.kafka_source import KafkaSource
from workers.worker import EXIT_FAILED, Worker

pytestmark = pytest.mark.broker


QUICK = KafkaSettings(
    session_timeout_ms=6_000, heartbeat_interval_ms=400, rebalance_timeout_ms=60_000
)
STALL_MS = 8_000
"""Waited for where something is stuck, and more than anything takes that is not."""
NEVER_MS = 600_000
"""Nothing is called stuck, and nothing given up."""


async def a_quick_bench(
    broker: str,
    unique: Unique,
    *,
    partitions: int = 1,
    stall_ms: int = NEVER_MS,
    revoke_ms: int = 50_000,
    **delivery: Any,
) -> Bench:
    """Commits at once, and waits only for what a test names."""
    chosen = {"commit_interval_ms": 50, "produce_timeout_ms": NEVER_MS} | delivery
    bench = await a_bench(
        broker, unique, partitions=partitions, kafka=QUICK, delivery=DeliverySettings(**chosen)
    )
    lifecycle = LifecycleSettings(
        drain_timeout_ms=50_000, revoke_timeout_ms=revoke_ms, stall_timeout_ms=stall_ms
    )
    return Bench(msgspec.structs.replace(bench.settings, lifecycle=lifecycle))


def frames(count: int, *, partitions: int = 1) -> list[Sent]:
    return [
        Sent(a_jpeg(), key=b"cam-%d" % (n % partitions), partition=n % partitions)
        for n in range(count)
    ]


async def answered(count: int, *workers: Worker) -> None:
    await until(lambda: sum(w.metrics.total(m.ANSWERED) for w in workers) >= count)


async def ends_with(worker: asyncio.Task[int], code: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        assert await worker == code


async def forever(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


class Watch:
    """The group's offsets, looked at all along."""

    def __init__(self) -> None:
        self.seen: list[dict[int, int]] = [{}]

    def at(self, partition: int) -> int:
        return self.seen[-1].get(partition, 0)

    def never_lower(self) -> None:
        for before, after in zip(self.seen, self.seen[1:], strict=False):
            for partition, offset in before.items():
                assert after.get(partition, 0) >= offset, f"moved back: {before} -> {after}"


@asynccontextmanager
async def watched(bench: Bench, partitions: int) -> AsyncIterator[Watch]:
    """Ends with the verdict that no offset moved back, and no other broker was asked."""
    watch = Watch()
    consumer = make_consumer(bench.kafka)
    await start_client(consumer, bench.kafka)
    asked = [TopicPartition(bench.route.input, n) for n in range(partitions)]
    consumer.assign(asked)

    async def look() -> None:
        while True:
            offsets = {p.partition: await consumer.committed(p) for p in asked}
            watch.seen.append({p: o for p, o in offsets.items() if o is not None})
            await asyncio.sleep(0.02)

    looking = asyncio.ensure_future(look())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.wait([looking])
        await stop_client(consumer)
    watch.never_lower()


# --- a send or a stop that never returns -------------------------------------------------------


@pytest.mark.parametrize("guarantee", list(Guarantee))
async def test_a_send_that_hangs_is_given_up_and_done_again(
    real_kafka: str, unique: Unique, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee
) -> None:
    bench = await a_quick_bench(
        real_kafka, unique, guarantee=guarantee, produce_timeout_ms=STALL_MS
    )
    sent = await bench.send(*frames(30))
    send_batch = AIOKafkaProducer.send_batch
    hung: list[AIOKafkaProducer] = []

    async def hang_once(self: AIOKafkaProducer, *args: Any, **options: Any) -> Any:
        if not hung:
            hung.append(self)
            await forever()
        return await send_batch(self, *args, **options)

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", hang_once)
    worker = a_worker(bench)
    async with running(worker):
        await answered(30, worker)
    results = await bench.results(30)
    each_once(sources(results), sent)
    in_offset_order(results)
    assert await bench.committed() == 30
    assert hung


async def test_a_broker_that_says_nothing_for_a_while_costs_no_answer(
    kafka_rig: KafkaCluster, unique: Unique
) -> None:
    bench = await a_quick_bench(kafka_rig.bootstrap_servers, unique, produce_timeout_ms=1_000)
    # Longer than the cut: what is tried here is the send, not the membership.
    patient = msgspec.structs.replace(QUICK, session_timeout_ms=60_000)
    async with proxied(kafka_rig, bench, patient) as (proxy, through):
        sent = await bench.send(*frames(10))
        worker = a_worker(through)
        async with running(worker), watched(bench, 1):
            await answered(10, worker)
            proxy.cut()
            sent += await bench.send(*frames(10))
            # The records are prefetched or not: either way nothing leaves, and the deadline ends
            # what hangs in the one case.
            await asyncio.sleep(1.5)
            assert worker.metrics.total(m.ANSWERED) == 10
            proxy.heal()
            await answered(20, worker)
    none_lost(sources(await bench.results(20)), sent)


async def test_a_producer_that_hangs_for_good_ends_the_worker_and_the_next_takes_over(
    real_kafka: str, unique: Unique
) -> None:
    bench = await a_quick_bench(
        real_kafka, unique, stall_ms=STALL_MS, produce_timeout_ms=STALL_MS // 2
    )
    sent = await bench.send(*frames(10))
    async with watched(bench, 1):
        first = a_worker(bench)
        run = asyncio.ensure_future(first.run())
        await answered(10, first)
        producer = _producer_of(first)
        stop = producer.stop
        producer.send_batch = producer.stop = forever
        sent += await bench.send(*frames(10))
        await ends_with(run, EXIT_FAILED)
        await stop()
        second = a_worker(bench)
        async with running(second):
            await answered(10, second)
    each_once(sources(await bench.results(20)), sent)


async def test_clients_that_do_not_stop_do_not_keep_the_worker(
    real_kafka: str, unique: Unique
) -> None:
    bench = await a_quick_bench(real_kafka, unique)
    sent = await bench.send(*frames(10))
    worker = a_worker(bench)
    async with running(worker):
        await answered(10, worker)
        producer, consumer = _producer_of(worker), _consumer_of(worker)
        stops: tuple[Callable[[], Awaitable[None]], ...] = (producer.stop, consumer.stop)
        producer.stop = consumer.stop = forever
    # `running` has seen it end with code 0, drained.
    for stop in stops:
        await stop()
    each_once(sources(await bench.results(10)), sent)
    assert await bench.committed() == 10


# --- an offset that moves back -----------------------------------------------------------------


async def test_a_partition_that_left_and_came_back_never_commits_a_lower_offset(
    real_kafka: str, unique: Unique
) -> None:
    # Of which it uses all: what it holds is not answered.
    bench = await a_quick_bench(real_kafka, unique, partitions=2, revoke_ms=500)
    engines: list[ScriptedEngine] = []
    sent = await bench.send(*frames(10, partitions=2))
    first, second = scripted(bench, engines), a_worker(bench)
    async with watched(bench, 2) as watch, running(first):
        await until(lambda: len(engines[0].held) == 10)
        late = [item for item in engines[0].held if item.coordinates.offset > 0]
        engines[0].answer(*(item for item in engines[0].held if item not in late))
        await until(lambda: watch.at(0) == watch.at(1) == 1)
        async with running(second):
            (partition,) = {number for _, number in second.assigned}
            await until(lambda: watch.at(partition) == 5)
        await until(lambda: len(first.assigned) == 2)
        # The same partition, a new epoch: answers of the former one come only now.
        engines[0].held.clear()
        engines[0].answer(*late)
        sent += await bench.send(*frames(4, partitions=2))
        await until(lambda: watch.at(partition) == 5 and bool(engines[0].held))
        while watch.at(0) < 7 or watch.at(1) < 7:
            engines[0].answer()
            await asyncio.sleep(0.02)
    assert first.metrics.value(m.LATE_COMPLETIONS) > 0
    none_lost(sources(await bench.everything_answered()), sent)


def scripted(bench: Bench, engines: list[ScriptedEngine]) -> Worker:
    def make(deliver: Any, fail: Any) -> ScriptedEngine:
        engines.append(ScriptedEngine(deliver, fail))
        return engines[-1]

    return Worker(bench.settings, lambda: Machinery(make, {"default": MODEL}))


async def test_a_member_that_was_cut_off_commits_nothing_when_it_comes_back(
    kafka_rig: KafkaCluster, unique: Unique
) -> None:
    # It commits at its end only: what it answered before the cut is uncommitted after it. What it
    # takes in after the cut is not answered in its revoke.
    bench = await a_quick_bench(
        kafka_rig.bootstrap_servers, unique, revoke_ms=500,
        commit_interval_ms=NEVER_MS, commit_every=1_000_000,
    )  # fmt: skip
    heir = Bench(
        msgspec.structs.replace(
            bench.settings,
            delivery=msgspec.structs.replace(bench.settings.delivery, commit_interval_ms=50),
        )
    )
    async with proxied(kafka_rig, bench, QUICK) as (proxy, through):
        sent = await bench.send(*frames(10))
        engines: list[ScriptedEngine] = []
        first, second = scripted(through, engines), a_worker(heir)
        async with watched(bench, 1) as watch, running(first):
            await until(lambda: len(engines[0].held) == 10)
            engines[0].answer()
            await answered(10, first)
            proxy.cut()
            async with running(second):
                sent += await bench.send(*frames(10))
                await until(lambda: watch.at(0) == 20)
            # Nobody is left in the group: now a broker takes any commit from outside it, and the
            # first one would commit what it had answered before the cut.
            proxy.heal()
            await until(lambda: first.metrics.value(m.REBALANCES) == 2)
            assert watch.at(0) == 20
            sent += await bench.send(*frames(3))
            while first.metrics.total(m.ANSWERED) < 13:
                engines[0].answer()
                await asyncio.sleep(0.02)
    none_lost(sources(await bench.everything_answered()), sent)
    assert await bench.committed() == 23


@asynccontextmanager
async def proxied(
    rig: KafkaCluster, bench: Bench, kafka: KafkaSettings
) -> AsyncIterator[tuple[Proxy, Bench]]:
    """A proxy in front of the broker, and the bench of a worker behind it."""
    (node,) = rig.nodes
    assert node.plan.proxy_port is not None
    assert node.plan.proxied_port is not None
    proxy = Proxy(node.plan.proxy_port, node.plan.proxied_port)
    through = msgspec.structs.replace(
        kafka, bootstrap_servers=proxy.address, group_id=bench.kafka.group_id
    )
    async with proxy.listening():
        yield proxy, Bench(msgspec.structs.replace(bench.settings, kafka=through))


# --- a consumer that makes no progress after a broker's restart ---------------------------------


def never_fetch(source: KafkaSource) -> None:
    """It keeps its partitions, and gets nothing."""
    _of(source)._fetcher._proc_fetch_request = forever


def never_join(source: KafkaSource) -> None:
    """aiokafka's issue 1154: it gives its partitions back to join again, and never does."""
    coordinator = _of(source)._coordinator
    coordinator._do_rejoin_group = forever
    coordinator.request_rejoin()


def never_answered(source: KafkaSource) -> None:
    """Whatever it asks of whichever broker, no answer comes; others get theirs."""
    _of(source)._client.send = forever


STUCK = (never_fetch, never_join, never_answered)


async def test_a_consumer_that_is_stuck_after_a_restart_ends_its_worker_and_the_next_takes_over(
    kafka_rig: KafkaCluster, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, (node,) = kafka_rig.bootstrap_servers, kafka_rig.nodes
    benches = [await a_quick_bench(address, unique, stall_ms=STALL_MS) for _ in STUCK]
    # Who waits to be let in is stuck only after the others have had so long.
    brief = {"rebalance_timeout_ms": STALL_MS}
    benches = [
        Bench(
            msgspec.structs.replace(
                bench.settings, kafka=msgspec.structs.replace(bench.kafka, **brief)
            )
        )
        for bench in benches
    ]
    sent = [await bench.send(*frames(10)) for bench in benches]
    workers = [a_worker(bench) for bench in benches]
    runs = [asyncio.ensure_future(worker.run()) for worker in workers]
    for worker in workers:
        await answered(10, worker)
    monkeypatch.setattr(kafka_source, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(kafka_commit, "COMMIT_TIMEOUT_S", 1.0)
    await asyncio.to_thread(node.kill)
    # Their requests of before have died with the broker; those that come after it will hang.
    for stick, worker in zip(STUCK, workers, strict=True):
        assert worker._parts is not None
        stick(worker._parts.source)
    await asyncio.to_thread(node.start)
    for bench, each in zip(benches, sent, strict=True):
        each.extend(await bench.send(*frames(10)))
    await asyncio.gather(*(ends_with(run, EXIT_FAILED) for run in runs))
    monkeypatch.undo()
    for worker in workers:
        # What only the end of a process ends. The library lets cancellations of its own out.
        await asyncio.wait([asyncio.ensure_future(_consumer_of(worker)._fetcher.close())])
        await _consumer_of(worker)._client.close()
    for bench, each in zip(benches, sent, strict=True):
        patient = msgspec.structs.replace(bench.settings.lifecycle, stall_timeout_ms=NEVER_MS)
        heir = a_worker(Bench(msgspec.structs.replace(bench.settings, lifecycle=patient)))
        async with watched(bench, 1), running(heir):
            await until_answered(bench, each)
        assert await bench.committed() == 20


async def until_answered(bench: Bench, sent: list[Coordinates]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while set(sent) - set(sources(await bench.everything_answered())):
            await asyncio.sleep(0.1)


async def test_a_worker_without_partitions_is_not_stuck(real_kafka: str, unique: Unique) -> None:
    bench = await a_quick_bench(real_kafka, unique, stall_ms=500)
    first, spare = a_worker(bench), a_worker(bench)
    async with running(first):
        run = asyncio.ensure_future(spare.run())
        await until(lambda: spare.metrics.value(m.REBALANCES) == 1)
        assert spare._parts is not None
        source: Any = spare._parts.source
        # From now on whoever waits to be let in is stuck at once.
        settings = source._settings
        at_once = msgspec.structs.replace(settings.kafka, rebalance_timeout_ms=0)
        source._settings = msgspec.structs.replace(settings, kafka=at_once)
        loop = asyncio.get_running_loop()
        begun_at = loop.time()
        # Longer than it takes to say so.
        await until(lambda: loop.time() - begun_at > 2.0)
        assert not run.done()
        spare.request_stop()
        await ends_with(run, 0)


def _of(source: KafkaSource) -> Any:
    assert source._consumer is not None
    return source._consumer


def _consumer_of(worker: Worker) -> Any:
    assert worker._parts is not None
    return _of(worker._parts.source)


def _producer_of(worker: Worker) -> Any:
    assert worker._parts is not None
    sink: Any = worker._parts.sink
    return sink._producer
