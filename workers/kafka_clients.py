"""Settings → Kafka clients: the one place that builds aiokafka objects.

Delivery choices written down here, once:

- Producers use `acks=all`; those of at-least-once delivery are not idempotent. aiokafka keeps one
  produce request per partition in flight and puts a batch it retries back at the head of its
  queue, so order survives its own retries; what idempotence would add is the removal of duplicates
  after a lost acknowledgement, which at-least-once delivery allows. Embedded brokers do not offer
  it. Transactional producers are idempotent by nature.
- Consumers commit by hand, never automatically, and use the RoundRobin assignor alone (the sticky
  one keeps state in the class, shared by every consumer of the process).
- `start` and `stop` of the library may hang; ours have deadlines of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    for_code,
)
from aiokafka.structs import ConsumerRecord, RecordMetadata

from schemas.errors import ConfigError, TransientError
from schemas.settings import MIB, KafkaSettings
from workers.kafka_connection import connection_arguments, why_refused
from workers.kafka_producer import Producer

__all__ = [
    "AIOKafkaAdminClient",
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "KafkaError",
    "MessageSizeTooLargeError",
    "OffsetOutOfRangeError",
    "Record",
    "RecordMetadata",
    "TopicPartition",
    "TopicSpec",
    "check_topics",
    "create_topics",
    "is_member",
    "list_topics",
    "make_admin",
    "make_consumer",
    "make_producer",
    "partition_numbers",
    "start_client",
    "stop_client",
]

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
LOOK_AGAIN_S = 0.1
PROTOCOL_OVERHEAD_BYTES = 64 * 1024
"""What a record's key, headers and framing may add to its value."""

NO_GENERATION = -1
"""The generation of a consumer that the group has dropped or never had."""

Record = ConsumerRecord[bytes, bytes]
"""A record as the library hands it out, key and value as they are."""

KafkaClient = AIOKafkaConsumer | AIOKafkaProducer | AIOKafkaAdminClient


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. `configs` are the broker's topic settings (strings)."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


def make_consumer(
    kafka: KafkaSettings,
    *topics: str,
    group: bool = True,
    auto_offset_reset: str | None = None,
    max_poll_records: int | None = None,
    isolation: str = "read_uncommitted",
) -> AIOKafkaConsumer:
    """A consumer that never commits by itself. Must be called inside a running event loop.

    Args:
        kafka: the connection and the group.
        topics: subscribed at once; none to subscribe later, with a listener.
        group: False for a consumer outside any group (it reads all partitions of `topics`).
        auto_offset_reset: `earliest` or `latest`; the settings' own when None.
        max_poll_records: most records of one `getmany`.
        isolation: `read_uncommitted`, or `read_committed` to leave out what transactions aborted
            and to wait for those that are open.
    """
    return AIOKafkaConsumer(
        *topics,
        **connection_arguments(kafka),
        group_id=kafka.group_id if group else None,
        auto_offset_reset=auto_offset_reset or kafka.auto_offset_reset,
        enable_auto_commit=False,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        session_timeout_ms=kafka.session_timeout_ms,
        heartbeat_interval_ms=kafka.heartbeat_interval_ms,
        rebalance_timeout_ms=kafka.rebalance_timeout_ms,
        max_poll_interval_ms=kafka.max_poll_interval_ms,
        max_partition_fetch_bytes=kafka.max_partition_fetch_bytes,
        max_poll_records=max_poll_records,
        isolation_level=isolation,
    )


def make_producer(
    kafka: KafkaSettings,
    *,
    max_record_bytes: int = 8 * MIB,
    max_batch_bytes: int = 256 * 1024,
    timeout_ms: int | None = None,
    linger_ms: int = 2,
    transactional_id: str | None = None,
) -> AIOKafkaProducer:
    """A producer with `acks=all`, no compression (pictures do not compress) and a short linger.

    Must be called inside a running event loop.

    Args:
        kafka: the connection.
        max_record_bytes: the largest value it will be given; requests may be a little larger.
        max_batch_bytes: most bytes of records gathered for one partition (one may be larger).
        timeout_ms: after it, an unacknowledged batch fails; `request_timeout_ms` when None.
        linger_ms: how long a record waits for company.
        transactional_id: makes it a transactional producer. Its start fences every earlier
            producer of this id, and aborts what that left open. The broker aborts a transaction
            that is open for twice `timeout_ms`.
    """
    settings = connection_arguments(kafka)
    if timeout_ms is not None:
        settings["request_timeout_ms"] = timeout_ms
    if transactional_id is not None:
        settings["transactional_id"] = transactional_id
        settings["transaction_timeout_ms"] = 2 * settings["request_timeout_ms"]
    return Producer(
        **settings,
        acks="all",
        compression_type=None,
        enable_idempotence=transactional_id is not None,
        linger_ms=linger_ms,
        max_batch_size=max_batch_bytes,
        max_request_size=max_record_bytes + PROTOCOL_OVERHEAD_BYTES,
    )


def make_admin(kafka: KafkaSettings) -> AIOKafkaAdminClient:
    """An administration client. Must be called inside a running event loop."""
    return AIOKafkaAdminClient(**connection_arguments(kafka))


async def start_client(
    client: KafkaClient, kafka: KafkaSettings, *, timeout_s: float = START_TIMEOUT_S
) -> None:
    """Connect, within `timeout_s` seconds. A client that did not start is closed again.

    When that fails, the brokers are asked why, which takes `ASK_TIMEOUT_S` each at most.

    Raises:
        TransientError: no broker answered; the message names the address.
        ConfigError: a broker answered and refuses us; the message names the setting.
    """
    where = kafka.bootstrap_servers
    try:
        async with asyncio.timeout(timeout_s):
            await client.start()
    except TimeoutError as error:
        await stop_client(client)
        silence = f"no Kafka broker answered at {where} in {timeout_s:g} s"
        if kafka.security_protocol != "PLAINTEXT":
            # A listener that waits for another protocol need not hang up on ours.
            silence += f"; is kafka.security_protocol = {kafka.security_protocol} its listener's?"
        raise await why_refused(kafka) or TransientError(silence) from error
    except KafkaError as error:
        await stop_client(client)
        unreachable = TransientError(f"cannot reach a Kafka broker at {where}: {error}")
        raise await why_refused(kafka) or unreachable from error
    except BaseException:
        await stop_client(client)
        raise


async def stop_client(client: KafkaClient, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Disconnect, within `timeout_s` seconds. True when the client ended in order."""
    ending = client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop()
    try:
        async with asyncio.timeout(timeout_s):
            await ending
    except TimeoutError:
        # Given up on the way, a client would go on to look for its broker for ever.
        with contextlib.suppress(TimeoutError, KafkaError):
            await asyncio.wait_for(_connections_of(client).close(), timeout_s)
        return False
    except KafkaError:
        return False
    except asyncio.CancelledError:
        # The library lets the end of a fetch that it cancelled itself out of `stop`.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return False
    return True


def _connections_of(client: KafkaClient) -> Any:
    if isinstance(client, AIOKafkaProducer):
        return client.client
    # The library hands it out nowhere else.
    return client._client  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def is_member(consumer: AIOKafkaConsumer) -> bool:
    """Whether the consumer has a place in its group. Without one the library still commits, in
    the way of consumers outside any group, and a broker takes that once nobody is left in it."""
    # The library says it nowhere else.
    coordinator: Any = consumer._coordinator  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return coordinator.generation != NO_GENERATION


async def list_topics(kafka: KafkaSettings) -> list[str]:
    """The broker's topics, sorted. Asks for all of them: a request by name may create them."""
    admin = make_admin(kafka)
    await start_client(admin, kafka)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            return sorted(await admin.list_topics())
    except (TimeoutError, KafkaError) as error:
        where = kafka.bootstrap_servers
        raise TransientError(f"the broker at {where} did not list its topics: {error}") from error
    finally:
        await stop_client(admin)


async def check_topics(kafka: KafkaSettings, names: Iterable[str]) -> list[str]:
    """Those of `names` that the broker does not have, in the order given, each once.

    Raises:
        TransientError: the broker cannot be reached or does not answer.
    """
    present = set(await list_topics(kafka))
    return [name for name in dict.fromkeys(names) if name not in present]


async def partition_numbers(kafka: KafkaSettings, topic: str) -> list[int]:
    """The partitions of an existing topic, sorted.

    Raises:
        TransientError: the broker cannot be reached or does not answer.
    """
    admin = make_admin(kafka)
    await start_client(admin, kafka)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            # Untyped in the library.
            described: list[dict[str, Any]] = await admin.describe_topics([topic])
    except (TimeoutError, KafkaError) as error:
        where = kafka.bootstrap_servers
        raise TransientError(f"the broker at {where} did not describe {topic}: {error}") from error
    finally:
        await stop_client(admin)
    return sorted(int(each["partition"]) for each in described[0]["partitions"])


async def create_topics(kafka: KafkaSettings, specs: Iterable[TopicSpec]) -> list[str]:
    """Create topics; existing ones are left as they are. Returns the names created, once the broker
    lists them all: it answers as soon as the creation is decided, and shows the topic later.

    Raises:
        TransientError: the broker cannot be reached, or does not show the topics in time.
        ConfigError: the broker refuses a topic (the message names it and the reason).
    """
    wanted = {spec.name: spec for spec in specs}
    admin = make_admin(kafka)
    await start_client(admin, kafka)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            # The response class depends on the broker's protocol version: untyped in the library.
            response: Any = await admin.create_topics([_new_topic(s) for s in wanted.values()])
            created = [name for name, code, *_ in response.topic_errors if _created(name, code)]
            # The broker sends no word of it, so it has to be asked.
            while not set(wanted) <= set(await admin.list_topics()):  # noqa: ASYNC110 (the broker rings no bell)
                await asyncio.sleep(LOOK_AGAIN_S)
    except (TimeoutError, KafkaError) as error:
        where = kafka.bootstrap_servers
        raise TransientError(f"the broker at {where} did not create topics: {error}") from error
    finally:
        await stop_client(admin)
    return created


def _created(name: str, code: int) -> bool:
    if code == 0:
        return True
    error = for_code(code)
    if error is TopicAlreadyExistsError:
        return False
    raise ConfigError(f"the broker refuses topic {name!r}: {error.__name__}")


def _new_topic(spec: TopicSpec) -> NewTopic:
    return NewTopic(
        spec.name, spec.partitions, spec.replication_factor, topic_configs=dict(spec.configs)
    )
