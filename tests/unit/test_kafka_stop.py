"""Clients whose `stop` hangs, as the library's may, are let go after a deadline."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError

from schemas.settings import KafkaSettings
from workers.kafka_clients import AIOKafkaProducer, make_consumer, make_producer, stop_client

NOBODY = KafkaSettings(bootstrap_servers="127.0.0.1:1")


async def test_a_producer_that_hangs_is_cut_off_from_its_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = make_producer(NOBODY)
    closed: list[AIOKafkaProducer] = []
    really_stop, really_close = producer.stop, producer.client.close

    async def close() -> None:
        closed.append(producer)
        await really_close()

    monkeypatch.setattr(producer, "stop", asyncio.Event().wait)
    monkeypatch.setattr(producer.client, "close", close)
    assert not await stop_client(producer, timeout_s=0.01)
    assert closed == [producer], "it would look for its broker for ever"
    await really_stop()


async def test_a_consumer_that_hangs_or_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = make_consumer(NOBODY)
    really_stop = consumer.stop

    async def fail() -> None:
        raise KafkaConnectionError

    monkeypatch.setattr(consumer, "stop", asyncio.Event().wait)
    assert not await stop_client(consumer, timeout_s=0.01)
    monkeypatch.setattr(consumer, "stop", fail)
    assert not await stop_client(consumer, timeout_s=0.01)
    await really_stop()


async def test_a_client_that_lets_a_cancellation_of_its_own_out_does_not_cancel_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka does so when it is stopped in the middle of a fetch from a broker that is away."""
    consumer = make_consumer(NOBODY)
    really_stop = consumer.stop

    async def cancelled() -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(consumer, "stop", cancelled)
    assert not await stop_client(consumer)
    await really_stop()


async def test_a_stop_that_is_cancelled_from_outside_stays_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = make_consumer(NOBODY)
    really_stop = consumer.stop
    waiting = asyncio.Event()

    async def hang() -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(consumer, "stop", hang)
    stopping = asyncio.ensure_future(stop_client(consumer))
    await waiting.wait()
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await really_stop()
