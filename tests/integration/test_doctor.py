"""The doctor at a broker: what it must find there, and that its commands name the right numbers."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from frameloom import doctor
from frameloom.doctor import Plan, diagnose
from frameloom.doctor_finding import Finding, State
from frameloom.topics import create_route_topics
from schemas.settings import (
    DeliverySettings,
    Guarantee,
    HttpSettings,
    KafkaSettings,
    RouteSettings,
    Settings,
)
from tests.integration.kit import Unique
from workers.kafka_clients import TopicSpec, create_topics, list_topics

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {})


def some_settings(broker: str, unique: Unique) -> Settings:
    route = RouteSettings(input=unique("in"), output=unique("out"), dead_letter=unique("dlq"))
    return Settings(
        kafka=KafkaSettings(bootstrap_servers=broker, group_id=unique("group")),
        routes=[route],
        http=HttpSettings(port=0),
    )


async def found(settings: Settings, *, write: bool = False) -> dict[str, Finding]:
    plan = Plan(settings, "--config c.yaml", write=write, timeout_s=60.0)
    return {finding.check: finding async for finding in diagnose(plan)}


def ill(seen: Mapping[str, Finding]) -> dict[str, State]:
    return {c: f.state for c, f in seen.items() if f.state in (State.WARNING, State.PROBLEM)}


async def test_what_we_create_is_well(real_kafka: str, unique: Unique) -> None:
    settings = some_settings(real_kafka, unique)
    await create_route_topics(settings, partitions=4, replication=1)
    seen = await found(settings)
    assert ill(seen) == {}
    assert "Apache Kafka 4" in seen["broker"].found
    assert "announced" in seen["transactions"].found
    assert seen["clock"].state is State.SKIPPED
    assert "--write" in seen["clock"].remedy


async def test_limits_that_disagree(real_kafka: str, unique: Unique) -> None:
    settings = some_settings(real_kafka, unique)
    (route,) = settings.routes
    small = {"max.message.bytes": "500000"}
    await create_topics(
        settings.kafka,
        [
            TopicSpec(route.input, 1, configs={"max.message.bytes": "20000000"}),
            TopicSpec(route.output, 2, configs=small | {"min.insync.replicas": "2"}),
            TopicSpec(route.dead_letter, 1, configs={"cleanup.policy": "compact"}),
        ],
    )
    seen = await found(settings)
    assert ill(seen) == {
        f"topics.{route.input}": State.WARNING,
        f"topics.{route.output}": State.PROBLEM,
        f"topics.{route.dead_letter}": State.PROBLEM,
        f"limits.{route.input}": State.WARNING,
        f"limits.{route.dead_letter}": State.PROBLEM,
        f"limits.{route.output}": State.WARNING,
    }
    remedy = seen[f"limits.{route.dead_letter}"].remedy
    assert f"--entity-name {route.dead_letter}" in remedy
    assert remedy.endswith("max.message.bytes=20065536")


async def test_missing_topics_are_named_and_not_created(real_kafka: str, unique: Unique) -> None:
    settings = some_settings(real_kafka, unique)
    seen = await found(settings)
    (route,) = settings.routes
    assert set(ill(seen)) == {
        f"topics.{name}" for name in (route.input, route.output, route.dead_letter)
    }
    assert seen[f"topics.{route.input}"].remedy == "frameloom topics create --config c.yaml"
    assert route.input not in await list_topics(settings.kafka)


async def test_a_session_that_the_broker_does_not_allow(real_kafka: str, unique: Unique) -> None:
    settings = some_settings(real_kafka, unique)
    await create_route_topics(settings, partitions=4, replication=1)
    kafka = msgspec.structs.replace(
        settings.kafka, session_timeout_ms=5_000_000, heartbeat_interval_ms=3_000
    )
    seen = await found(msgspec.structs.replace(settings, kafka=kafka))
    assert ill(seen) == {"broker.session": State.PROBLEM}
    assert "1800000" in seen["broker.session"].remedy


async def test_clocks_are_compared_by_a_record_that_leaves_nothing(
    real_kafka: str, unique: Unique
) -> None:
    settings = some_settings(real_kafka, unique)
    await create_route_topics(settings, partitions=4, replication=1)
    seen = await found(settings, write=True)
    assert seen["clock"].state is State.OK, seen["clock"]
    assert [t for t in await list_topics(settings.kafka) if t.startswith("frameloom-doctor")] == []


async def test_the_embedded_broker_has_no_transactions(
    embedded_broker: str, unique: Unique
) -> None:
    settings = some_settings(embedded_broker, unique)
    await create_route_topics(settings, partitions=4, replication=1)
    seen = await found(settings)
    assert not [c for c, state in ill(seen).items() if state is State.PROBLEM], seen
    assert seen["limits"].state is State.OK, "of a topic it tells what was set"
    delivery = DeliverySettings(guarantee=Guarantee.EXACTLY_ONCE)
    seen = await found(msgspec.structs.replace(settings, delivery=delivery), write=True)
    assert State.PROBLEM is seen["transactions"].state, "announced, and not to be had"
    assert seen["clock"].state in (State.SKIPPED, State.WARNING, State.OK)
