"""Topics and clients against a real broker."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from schemas.errors import ConfigError, TransientError
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    TopicSpec,
    check_topics,
    create_topics,
    make_consumer,
    make_producer,
    start_client,
    stop_client,
)

UNREACHABLE = "127.0.0.1:1"


@pytest.mark.broker
async def test_missing_topics_are_named_and_created_once(
    broker: str, unique: Callable[[str], str]
) -> None:
    kafka = KafkaSettings(bootstrap_servers=broker)
    name, other = unique("a"), unique("b")

    assert await check_topics(kafka, [name, other, name]) == [name, other]
    assert await create_topics(kafka, [TopicSpec(name, partitions=2)]) == [name]
    assert await check_topics(kafka, [name, other]) == [other]
    assert await create_topics(kafka, [TopicSpec(name)]) == []


@pytest.mark.broker
async def test_what_the_producer_sends_a_consumer_without_group_reads(
    broker: str, unique: Callable[[str], str]
) -> None:
    kafka = KafkaSettings(bootstrap_servers=broker)
    topic = unique("frames")
    await create_topics(kafka, [TopicSpec(topic)])
    producer, consumer = make_producer(kafka), make_consumer(kafka, topic, group=False)
    await start_client(producer, kafka)
    await start_client(consumer, kafka)
    try:
        await producer.send_and_wait(topic, b"value" * 600_000, key=b"k", headers=[("h", b"1")])
        record = await consumer.getone()
    finally:
        assert await stop_client(producer)
        assert await stop_client(consumer)

    assert (record.key, len(record.value), list(record.headers)) == (b"k", 3_000_000, [("h", b"1")])


async def test_a_silent_listener_brings_up_the_protocol_where_one_is_set() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        kafka = KafkaSettings(bootstrap_servers=where, security_protocol="SSL")
        with pytest.raises(TransientError, match=f"answered at {where}.*security_protocol = SSL"):
            await start_client(make_producer(kafka), kafka, timeout_s=0.5)


async def test_an_unreachable_broker_is_transient_and_named() -> None:
    kafka = KafkaSettings(bootstrap_servers=UNREACHABLE)

    with pytest.raises(TransientError, match=UNREACHABLE):
        await check_topics(kafka, ["frames"])
    producer = make_producer(kafka)
    with pytest.raises(TransientError, match=UNREACHABLE):
        await start_client(producer, kafka)
    assert await stop_client(producer), "stopping twice is safe"


@pytest.mark.parametrize("servers", ["", "broker", "broker:", ":9092", "broker:0", "b:1,b:99999"])
async def test_a_malformed_address_is_a_config_error(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap_servers"):
        make_producer(KafkaSettings(bootstrap_servers=servers))


async def test_missing_certificates_are_a_config_error() -> None:
    kafka = KafkaSettings(security_protocol="SSL", ssl_cafile="/nowhere/ca.pem")
    with pytest.raises(ConfigError, match="ssl"):
        make_producer(kafka)
