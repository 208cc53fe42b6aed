"""Each way in which broker, topics and settings can disagree, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from frameloom import doctor_broker
from frameloom.doctor_finding import Finding, State
from frameloom.topics import topic_specs
from schemas.settings import DeliverySettings, Guarantee, KafkaSettings, LimitSettings, Settings
from workers.kafka_facts import BrokerFacts, TopicFacts

SETTINGS = Settings(
    kafka=KafkaSettings(bootstrap_servers="b:9092"), limits=LimitSettings(max_record_bytes=1_000)
)
ALTER = "kafka-configs.sh --bootstrap-server b:9092 --alter --entity-type topics --entity-name "
APIS = {0: (3, 13), 22: (0, 4), 25: (0, 3), 26: (0, 3), 28: (0, 4)}


def facts(
    *, of_topic: dict[str, dict[str, str]] | None = None, nodes: int = 1, **broker: str
) -> BrokerFacts:
    """A cluster on which everything is as `topics create` makes it, but for what is given."""
    topics = {
        name: TopicFacts(4, nodes, 0, dict(spec.configs) | (of_topic or {}).get(name, {}))
        for name, spec in topic_specs(SETTINGS, partitions=4, replication=1).items()
    }
    configs = {key.replace("_", "."): frozenset({value}) for key, value in broker.items()}
    return BrokerFacts(tuple(f"b:{n}" for n in range(nodes)), APIS, configs, topics)


def with_topic(name: str, **changes: object) -> BrokerFacts:
    known = facts()
    return replace(known, topics={**known.topics, name: replace(known.topics[name], **changes)})


def everything(known: BrokerFacts, settings: Settings = SETTINGS) -> list[Finding]:
    return list(_everything(known, settings))


def _everything(known: BrokerFacts, settings: Settings) -> Iterator[Finding]:
    yield from doctor_broker.broker(settings, known)
    yield from doctor_broker.topics(settings, known, "--config c.yaml")
    yield from doctor_broker.limits(settings, known)
    yield from doctor_broker.transactions(settings, known)


def the_one(known: BrokerFacts, settings: Settings = SETTINGS) -> Finding:
    """The one finding that is not well."""
    (found,) = [f for f in everything(known, settings) if f.state in (State.WARNING, State.PROBLEM)]
    return found


def test_topics_as_we_create_them_are_well() -> None:
    found = everything(facts())
    assert {f.state for f in found} == {State.OK}
    assert [f.check for f in found] == [
        "broker", "topics.frames", "topics.detections", "topics.frames.dlq", "limits",
        "transactions",
    ]  # fmt: skip
    assert "Apache Kafka 4.1" in found[0].found


def test_a_missing_topic() -> None:
    known = facts()
    topics = {name: t for name, t in known.topics.items() if name != "detections"}
    found = the_one(replace(known, topics=topics))
    assert (found.check, found.state) == ("topics.detections", State.PROBLEM)
    assert found.remedy == "frameloom topics create --config c.yaml"


@pytest.mark.parametrize(
    ("known", "check", "state", "words", "remedy"),
    [
        (
            with_topic("frames", leaderless=2), "topics.frames", State.PROBLEM,
            "2 of 4 partitions have no leader", "start the brokers",
        ),
        (
            with_topic("frames", partitions=1), "topics.frames", State.WARNING,
            "one partition", "kafka-topics.sh --bootstrap-server b:9092 --alter --topic frames",
        ),
        (
            facts(of_topic={"frames.dlq": {"cleanup.policy": "compact,delete"}}),
            "topics.frames.dlq", State.PROBLEM, "all but the last record",
            f"{ALTER}frames.dlq --add-config cleanup.policy=delete",
        ),
        (
            facts(of_topic={"detections": {"min.insync.replicas": "2"}}),
            "topics.detections", State.PROBLEM, "nothing can be written",
            f"{ALTER}detections --add-config min.insync.replicas=1",
        ),
        (
            facts(of_topic={"frames": {"max.message.bytes": "999"}, "frames.dlq": {}}),
            "limits.frames", State.WARNING, "cannot send",
            f"{ALTER}frames --add-config max.message.bytes=66536",
        ),
        (
            facts(
                of_topic={
                    "frames": {"max.message.bytes": "1000000"},
                    "frames.dlq": {"max.message.bytes": "1065536"},
                }
            ),
            "limits.frames", State.WARNING, "record_too_large",
            "set limits.max_record_bytes to 934464",
        ),
        (
            facts(of_topic={"frames.dlq": {"max.message.bytes": "66536"}}),
            "limits.frames.dlq", State.PROBLEM, "ends the worker",
            f"{ALTER}frames.dlq --add-config max.message.bytes=132072",
        ),
        (
            facts(of_topic={"detections": {"max.message.bytes": "1000"}}),
            "limits.detections", State.WARNING, "result_too_large",
            f"{ALTER}detections --add-config max.message.bytes=1114112",
        ),
        (
            facts(socket_request_max_bytes="1000"), "limits.request", State.PROBLEM,
            "socket.request.max.bytes of the broker is 1000", "socket.request.max.bytes=133072",
        ),
        (
            facts(group_min_session_timeout_ms="20000", group_max_session_timeout_ms="60000"),
            "broker.session", State.PROBLEM, "nobody can join", "session_timeout_ms to 20000",
        ),
        (
            facts(group_max_session_timeout_ms="6000"),
            "broker.session", State.PROBLEM, "nobody can join", "session_timeout_ms to 6000",
        ),
        (
            facts(nodes=2, replica_fetch_response_max_bytes="100"),
            "limits.copies", State.WARNING, "one record at a time", "server.properties",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit(
    known: BrokerFacts, check: str, state: State, words: str, remedy: str
) -> None:
    found = the_one(known)
    assert (found.check, found.state) == (check, state)
    assert words in found.found
    assert remedy in found.remedy


def test_one_copy_on_several_brokers() -> None:
    known = facts(nodes=3)
    topics = {name: replace(topic, replicas=1) for name, topic in known.topics.items()}
    found = [f for f in everything(replace(known, topics=topics)) if f.state is State.WARNING]
    assert len(found) == 3
    assert "takes records along" in found[0].found


def test_exactly_once_needs_transactions() -> None:
    wanted = Settings(
        kafka=SETTINGS.kafka, limits=SETTINGS.limits,
        delivery=DeliverySettings(guarantee=Guarantee.EXACTLY_ONCE, produce_timeout_ms=30_000),
    )  # fmt: skip
    without = replace(facts(), apis={0: (0, 8)})
    found = the_one(without, wanted)
    assert (found.check, found.state) == ("transactions", State.PROBLEM)
    assert "at_least_once" in found.remedy
    assert {f.state for f in everything(without)} == {State.OK}, "not needed by at_least_once"
    short = the_one(facts(transaction_max_timeout_ms="50000"), wanted)
    assert "delivery.produce_timeout_ms to at most 25000" in short.remedy
    assert {f.state for f in everything(facts(), wanted)} == {State.OK}


def test_a_broker_that_says_little_is_not_called_ill() -> None:
    known = replace(facts(), apis={}, configs=None, silent="UnknownError")
    states = {f.check: f.state for f in everything(known)}
    assert states["limits"] is states["transactions"] is State.SKIPPED
    assert State.PROBLEM not in states.values()


def test_limits_need_topics_that_tell_theirs() -> None:
    known = facts()
    mute = {name: replace(topic, configs=None) for name, topic in known.topics.items()}
    for topics in ({}, mute):
        states = {f.check: f.state for f in everything(replace(known, topics=topics))}
        assert states["limits"] is State.SKIPPED


def test_nodes_that_differ_count_by_the_strictest() -> None:
    known = facts()
    values = {"socket.request.max.bytes": frozenset({"100", "104857600"})}
    assert the_one(replace(known, configs=values)).check == "limits.request"


@pytest.mark.parametrize(
    ("ahead_s", "within_s", "state"),
    [
        (0.4, 0.001, State.OK), (-0.6, 0.01, State.WARNING), (0.6, 0.2, State.OK),
        (5.2, 0.01, State.PROBLEM), (-90.0, 1.0, State.PROBLEM),
    ],
)  # fmt: skip
def test_clocks(ahead_s: float, within_s: float, state: State) -> None:
    assert doctor_broker.clock(ahead_s, within_s).state is state
