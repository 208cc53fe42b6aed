"""What a broker says of itself and of topics: for `frameloom doctor`, which judges it.

Reads only, but for `clock_offset`, which makes a topic of its own and removes it, and
`transaction_fault`, which starts a producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import create_conn
from aiokafka.errors import for_code

from schemas.errors import ConfigError, TransientError
from schemas.settings import KafkaSettings
from workers.kafka_clients import (
    AIOKafkaAdminClient,
    KafkaError,
    TopicSpec,
    create_topics,
    make_admin,
    make_producer,
    start_client,
    stop_client,
)
from workers.kafka_connection import connection_arguments

PROBES = 7
_LOG_APPEND_TIME = 1
"""`timestamp_type` of a record that the broker stamped."""
_STEP_S = 5.0
"""Of one question to a broker that has answered before."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as the broker describes it.

    Attributes:
        partitions: how many.
        replicas: fewest copies of a partition.
        leaderless: partitions that nobody serves now.
        configs: its settings in force, defaults included; None when the broker does not say.
    """

    partitions: int
    replicas: int
    leaderless: int
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A cluster as it describes itself.

    Attributes:
        nodes: addresses that clients are told to use.
        apis: number of an API → the lowest and highest version of it (Kafka's protocol guide).
        configs: broker settings; where nodes differ, all values of a key. None when it does not
            say.
        topics: those asked for that are there.
        silent: why settings are missing; empty when they are not.
    """

    nodes: tuple[str, ...]
    apis: Mapping[int, tuple[int, int]]
    configs: Mapping[str, frozenset[str]] | None
    topics: Mapping[str, TopicFacts]
    silent: str = ""


async def read_facts(
    kafka: KafkaSettings, topics: Iterable[str], *, start_timeout_s: float
) -> BrokerFacts:
    """Ask the broker. Takes `start_timeout_s`, and some seconds for each further question.

    Raises:
        TransientError: nobody answers.
        ConfigError: a broker refuses us; the message names the setting.
    """
    admin = make_admin(kafka)
    await start_client(admin, kafka, timeout_s=start_timeout_s)
    try:
        return await _ask(admin, kafka, dict.fromkeys(topics))
    except (TimeoutError, KafkaError) as error:
        why = str(error) or type(error).__name__
        raise TransientError(
            f"the broker at {kafka.bootstrap_servers} stopped answering: {why}"
        ) from error
    finally:
        await stop_client(admin)


async def transaction_fault(kafka: KafkaSettings, *, timeout_ms: int) -> str:
    """Why the broker starts no transactional producer; empty when it does. Brokers may announce
    transactions and have none. Leaves an id (`<group>/frameloom-doctor`) in the broker's account of
    transactions, which forgets it after its `transactional.id.expiration.ms`.

    Args:
        timeout_ms: of a request, as the worker's producers have it.
    """
    producer = make_producer(
        kafka, timeout_ms=timeout_ms, transactional_id=f"{kafka.group_id}/frameloom-doctor"
    )
    try:
        await start_client(producer, kafka)
    except (TransientError, ConfigError) as error:
        return str(error.__cause__ or error)
    await stop_client(producer)
    return ""


async def clock_offset(kafka: KafkaSettings) -> tuple[float, float] | None:
    """How far this machine's clock is ahead of the broker's, and how exactly that is known (±),
    seconds. None when the broker does not stamp records.

    The broker stamps probes on a topic that is made for them and removed; the one with the shortest
    way counts, and its stamp lies between its sending and its acknowledgement.

    Raises:
        TransientError, ConfigError: the broker does not take part.
    """
    topic = f"frameloom-doctor-{uuid.uuid4().hex[:12]}"
    stamped = {"message.timestamp.type": "LogAppendTime"}
    await create_topics(kafka, [TopicSpec(topic, configs=stamped)])
    try:
        return await _best_probe(kafka, topic)
    except (TimeoutError, KafkaError) as error:
        raise TransientError(f"the broker did not take probes: {error}") from error
    finally:
        await _remove(kafka, topic)


async def _best_probe(kafka: KafkaSettings, topic: str) -> tuple[float, float] | None:
    producer = make_producer(kafka, linger_ms=0)
    await start_client(producer, kafka)
    best: tuple[float, float] | None = None
    try:
        for _ in range(PROBES):
            sent_at, begun_at = time.time(), time.monotonic()
            async with asyncio.timeout(_STEP_S):
                got = await producer.send_and_wait(topic, b"frameloom doctor", partition=0)
            took_s = time.monotonic() - begun_at
            if got.timestamp_type != _LOG_APPEND_TIME:
                return None
            ahead_s = sent_at + took_s / 2 - got.timestamp / 1e3
            # Stamps are whole milliseconds.
            if best is None or took_s / 2 + 0.001 < best[1]:
                best = (ahead_s, took_s / 2 + 0.001)
    finally:
        await stop_client(producer)
    return best


async def _remove(kafka: KafkaSettings, topic: str) -> None:
    admin = make_admin(kafka)
    await start_client(admin, kafka)
    try:
        async with asyncio.timeout(_STEP_S):
            await admin.delete_topics([topic])
    except (TimeoutError, KafkaError) as error:
        raise TransientError(f"topic {topic} could not be removed: {error}") from error
    finally:
        await stop_client(admin)


async def _ask(
    admin: AIOKafkaAdminClient, kafka: KafkaSettings, topics: Mapping[str, None]
) -> BrokerFacts:
    async with asyncio.timeout(_STEP_S):
        cluster: dict[str, Any] = await admin.describe_cluster()
        # All of them: a request by name may create one.
        described: list[dict[str, Any]] = await admin.describe_topics(None)
    nodes: list[dict[str, Any]] = cluster["brokers"]
    there = {each["topic"]: each["partitions"] for each in described if each["topic"] in topics}
    configs: Mapping[str, frozenset[str]] | None = None
    of_topics: Mapping[str, Mapping[str, str]] = {}
    silent = ""
    try:
        async with asyncio.timeout(_STEP_S):
            configs = await _broker_configs(admin, [int(node["node_id"]) for node in nodes])
            of_topics = await _topic_configs(admin, list(there))
    except (TimeoutError, KafkaError, AttributeError) as error:
        # Brokers that do not know the question answer it with anything, or not at all.
        silent = str(error) or type(error).__name__
    return BrokerFacts(
        nodes=tuple(f"{node['host']}:{node['port']}" for node in nodes),
        apis=await _apis(kafka),
        configs=configs,
        topics={
            name: TopicFacts(
                partitions=len(partitions),
                replicas=min((len(p["replicas"]) for p in partitions), default=0),
                leaderless=sum(p["leader"] < 0 for p in partitions),
                configs=of_topics.get(name),
            )
            for name, partitions in there.items()
        },
        silent=silent,
    )


async def _broker_configs(
    admin: AIOKafkaAdminClient, nodes: list[int]
) -> Mapping[str, frozenset[str]]:
    values: dict[str, set[str]] = {}
    resources = [ConfigResource(ConfigResourceType.BROKER, str(node)) for node in nodes]
    for entries in (await _configs(admin, resources)).values():
        for key, value in entries.items():
            values.setdefault(key, set()).add(value)
    return {key: frozenset(found) for key, found in values.items()}


async def _topic_configs(
    admin: AIOKafkaAdminClient, topics: list[str]
) -> Mapping[str, Mapping[str, str]]:
    if not topics:
        return {}
    return await _configs(admin, [ConfigResource(ConfigResourceType.TOPIC, t) for t in topics])


async def _configs(
    admin: AIOKafkaAdminClient, resources: list[ConfigResource]
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    # Untyped in the library; every version of the answer begins with these fields.
    responses: list[Any] = await admin.describe_configs(resources)
    for response in responses:
        for code, _message, _kind, name, entries in response.resources:
            if code:
                raise for_code(code)(f"settings of {name}")
            found[name] = {key: value for key, value, *_ in entries if value is not None}
    return found


async def _apis(kafka: KafkaSettings) -> Mapping[int, tuple[int, int]]:
    """What the first broker that answers speaks. The library asks each one, and keeps it."""
    arguments = connection_arguments(kafka)
    for address in arguments.pop("bootstrap_servers"):
        host, _, port = address.rpartition(":")
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(_STEP_S):
                connection: Any = await create_conn(host, int(port), **arguments)
            versions: Mapping[int, tuple[int, int]] = connection._versions  # noqa: SLF001 (nowhere else)
            connection.close()
            return dict(versions)
    return {}
