"""Broker and topics against the settings: what does not fit together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from frameloom.doctor_finding import Finding, ok, problem, skipped, warning
from frameloom.topics import DEAD_LETTER_HEADROOM_BYTES, topic_specs
from schemas.settings import Guarantee, RouteSettings, Settings
from workers.admission import MAX_SKEW_S
from workers.kafka_clients import PROTOCOL_OVERHEAD_BYTES
from workers.kafka_facts import BrokerFacts, TopicFacts

NOTED_SKEW_S = 0.5
"""Clocks that are this far apart are worth a word: frames of a short `ttl_ms` expire early."""

_RECORD_LIMIT = "max.message.bytes"
_PRODUCE, _INIT_PRODUCER, _ADD_OFFSETS, _END_TXN, _TXN_OFFSETS = 0, 22, 25, 26, 28
"""Numbers of Kafka's APIs (kafka.apache.org/protocol)."""
_PRODUCE_SINCE = {13: "4.1", 12: "4.0", 11: "3.8", 10: "3.7", 9: "2.8", 8: "2.4", 7: "2.1"}
"""Highest version of Produce → the first Apache Kafka that speaks it."""


def broker(settings: Settings, facts: BrokerFacts) -> Iterator[Finding]:
    """Who answered, and whether the group's session suits it."""
    produce = facts.apis.get(_PRODUCE, (0, 0))[1]
    since = next((v for number, v in _PRODUCE_SINCE.items() if produce >= number), "")
    like = f"like Apache Kafka {since} or later" if since else f"Produce up to version {produce}"
    yield ok(
        "broker",
        f"{_count(len(facts.nodes), 'node')} ({', '.join(facts.nodes[:3])}), speaks {like}",
    )
    session = settings.kafka.session_timeout_ms
    least = _number(facts.configs, "group.min.session.timeout.ms", max)
    most = _number(facts.configs, "group.max.session.timeout.ms", min)
    if (least is not None and session < least) or (most is not None and session > most):
        yield problem(
            "broker.session",
            f"kafka.session_timeout_ms is {session}, the broker takes {least} to {most}: nobody "
            "can join the group",
            f"set kafka.session_timeout_ms to {least if session < (least or 0) else most}",
        )


def topics(settings: Settings, facts: BrokerFacts, options: str) -> Iterator[Finding]:
    """Every route's topics: there, served, copied and kept as they should be.

    Args:
        options: those that lead a command of ours to the same settings and broker.
    """
    create = f"frameloom topics create {options}".rstrip()
    for name, role in _roles(settings):
        check, topic = f"topics.{name}", facts.topics.get(name)
        if topic is None:
            yield problem(check, f"the {role} topic is missing", create)
            continue
        faults = list(_topic_faults(settings, facts, name, role))
        yield from faults
        if not faults:
            partitions, copies = topic.partitions, topic.replicas
            yield ok(check, f"{role}, {_count(partitions, 'partition')}, {_count(copies, 'copy')}")


def limits(settings: Settings, facts: BrokerFacts) -> Iterator[Finding]:
    """Sizes: what producers may send, what the worker takes, and what must fit into the answers'
    topics."""
    told = [_record_limit(topic) for topic in facts.topics.values()]
    if facts.configs is None or (told and not any(told)):
        why = f" ({facts.silent})" if facts.silent else ""
        yield skipped("limits", f"the broker does not tell its settings{why}")
        return
    if not told:
        yield skipped("limits", "needs the topics")
        return
    found = [finding for route in settings.routes for finding in _sizes(settings, facts, route)]
    needed = settings.limits.max_record_bytes + PROTOCOL_OVERHEAD_BYTES
    request = _number(facts.configs, "socket.request.max.bytes", min)
    if request is not None and request < needed:
        found.append(
            problem(
                "limits.request",
                f"socket.request.max.bytes of the broker is {request}, a record may need {needed}",
                f"set socket.request.max.bytes={2 * needed} in the broker's server.properties",
            )
        )
    copies = _number(facts.configs, "replica.fetch.response.max.bytes", min)
    if copies is not None and copies < needed and len(facts.nodes) > 1:
        found.append(
            warning(
                "limits.copies",
                f"replica.fetch.response.max.bytes is {copies}, below a record of {needed}: "
                "copies are fetched one record at a time",
                f"set replica.fetch.response.max.bytes={2 * needed} in server.properties",
            )
        )
    if any(finding.state.value in ("warning", "problem") for finding in found):
        yield from found
    else:
        yield ok(
            "limits",
            f"records of {settings.limits.max_record_bytes} bytes fit the input topics, their dead "
            "letters and results fit theirs",
        )


def transactions(settings: Settings, facts: BrokerFacts) -> Iterator[Finding]:
    """What exactly-once delivery needs of the broker."""
    wanted = settings.delivery.guarantee is Guarantee.EXACTLY_ONCE
    needed = {_INIT_PRODUCER, _ADD_OFFSETS, _END_TXN, _TXN_OFFSETS}
    if not facts.apis:
        yield skipped("transactions", "the broker does not tell its APIs")
    elif not needed <= facts.apis.keys():
        if wanted:
            yield problem(
                "transactions",
                "the broker has no transactions, and delivery.guarantee is exactly_once",
                "set delivery.guarantee: at_least_once, or use Apache Kafka",
            )
        else:
            yield ok("transactions", "not to be had here, and not needed (at_least_once)")
    else:
        yield from _transaction_time(settings, facts, wanted=wanted)


def no_transactions(why: str) -> Finding:
    """The broker announces transactions, and starts none.

    Args:
        why: what it answered.
    """
    return problem(
        "transactions",
        f"the broker announces transactions, and starts no transactional producer ({why})",
        "set delivery.guarantee: at_least_once, or use Apache Kafka with "
        "transaction.state.log.replication.factor at most its number of brokers",
    )


def _transaction_time(settings: Settings, facts: BrokerFacts, *, wanted: bool) -> Iterator[Finding]:
    timeout = 2 * settings.delivery.produce_timeout_ms
    most = _number(facts.configs, "transaction.max.timeout.ms", min)
    if wanted and most is not None and timeout > most:
        yield problem(
            "transactions",
            f"a transaction may take {timeout} ms (2 × delivery.produce_timeout_ms), the broker "
            f"allows {most}",
            f"set delivery.produce_timeout_ms to at most {most // 2}",
        )
        return
    # A broker may announce what it does not do (the embedded one does); only a try tells.
    use = "used (exactly_once); --write tries one" if wanted else "not used (at_least_once)"
    yield ok("transactions", f"announced by the broker, {use}")


def clock(ahead_s: float, within_s: float) -> Finding:
    """How far the two clocks are apart.

    Args:
        ahead_s: this machine's less the broker's, seconds.
        within_s: how exactly that is known, ±.
    """
    apart = f"this machine's clock is {ahead_s:+.3f} s from the broker's (±{within_s:.3f} s)"
    mend = "run an NTP client on both (timedatectl set-ntp true; chronyc tracking)"
    if abs(ahead_s) - within_s > MAX_SKEW_S:
        return problem("clock", f"{apart}: times to live and lags are wrong by as much", mend)
    if abs(ahead_s) - within_s > NOTED_SKEW_S:
        return warning("clock", apart, mend)
    return ok("clock", apart)


def _topic_faults(
    settings: Settings, facts: BrokerFacts, name: str, role: str
) -> Iterator[Finding]:
    topic, check = facts.topics[name], f"topics.{name}"
    if topic.leaderless:
        yield problem(
            check,
            f"{topic.leaderless} of {topic.partitions} partitions have no leader",
            "start the brokers that hold them: kafka-topics.sh --describe --unavailable-partitions",
        )
    at = f"--bootstrap-server {settings.kafka.bootstrap_servers}"
    if role == "input" and topic.partitions == 1:
        yield warning(
            check,
            "the input topic has one partition: a second worker would have nothing to do",
            f"kafka-topics.sh {at} --alter --topic {name} --partitions 4",
        )
    insync = _number(_as_sets(topic), "min.insync.replicas", max)
    if insync is not None and role != "input" and topic.replicas < insync:
        yield problem(
            check,
            f"min.insync.replicas is {insync}, and there are {topic.replicas} copies: nothing can "
            "be written (acks=all)",
            _alter(settings, name, "min.insync.replicas", topic.replicas),
        )
    if topic.replicas == 1 and len(facts.nodes) > 1:
        yield warning(
            check,
            f"the {role} topic has one copy on {len(facts.nodes)} brokers: one that dies takes "
            "records along",
            f"kafka-reassign-partitions.sh {at}, or frameloom topics create --replication 3 for "
            "new topics",
        )
    if "compact" in (topic.configs or {}).get("cleanup.policy", ""):
        yield problem(
            check,
            f"cleanup.policy of the {role} topic is compact: all but the last record of each "
            "stream disappear",
            _alter(settings, name, "cleanup.policy", "delete"),
        )


def _sizes(settings: Settings, facts: BrokerFacts, route: RouteSettings) -> Iterator[Finding]:
    taken = settings.limits.max_record_bytes
    sent = _record_limit(facts.topics.get(route.input))
    if sent is not None and sent < taken:
        yield warning(
            f"limits.{route.input}",
            f"{_RECORD_LIMIT} of the input topic is {sent}, limits.max_record_bytes {taken}: "
            "producers cannot send what the worker would take",
            _alter(settings, route.input, _RECORD_LIMIT, taken + PROTOCOL_OVERHEAD_BYTES),
        )
    if sent is not None and sent > taken + PROTOCOL_OVERHEAD_BYTES:
        yield warning(
            f"limits.{route.input}",
            f"{_RECORD_LIMIT} of the input topic is {sent}, limits.max_record_bytes {taken}: what "
            "is larger becomes a dead letter (record_too_large)",
            f"set limits.max_record_bytes to {sent - PROTOCOL_OVERHEAD_BYTES}, or "
            + _alter(settings, route.input, _RECORD_LIMIT, taken + PROTOCOL_OVERHEAD_BYTES),
        )
    dead = _record_limit(facts.topics.get(route.dead_letter))
    needed = (sent or taken) + DEAD_LETTER_HEADROOM_BYTES
    if dead is not None and dead < needed:
        yield problem(
            f"limits.{route.dead_letter}",
            f"{_RECORD_LIMIT} of the dead-letter topic is {dead}, the input's plus 64 KiB is "
            f"{needed}: a dead letter that does not fit ends the worker",
            _alter(settings, route.dead_letter, _RECORD_LIMIT, needed),
        )
    answers = _record_limit(facts.topics.get(route.output))
    largest = settings.limits.max_result_bytes
    if answers is not None and answers < largest:
        yield warning(
            f"limits.{route.output}",
            f"{_RECORD_LIMIT} of the output topic is {answers}, limits.max_result_bytes {largest}: "
            "larger results become dead letters (result_too_large)",
            _alter(settings, route.output, _RECORD_LIMIT, largest + PROTOCOL_OVERHEAD_BYTES),
        )


def _roles(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each topic once, with what it is for."""
    roles: dict[str, str] = {}
    for route in settings.routes:
        roles |= {route.input: "input", route.output: "output", route.dead_letter: "dead-letter"}
    for name in topic_specs(settings, partitions=1, replication=1):
        yield name, roles[name]


def _alter(settings: Settings, topic: str, key: str, value: object) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {settings.kafka.bootstrap_servers} --alter "
        f"--entity-type topics --entity-name {topic} --add-config {key}={value}"
    )


def _record_limit(topic: TopicFacts | None) -> int | None:
    return None if topic is None else _number(_as_sets(topic), _RECORD_LIMIT, min)


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _as_sets(topic: TopicFacts) -> Mapping[str, frozenset[str]]:
    return {key: frozenset({value}) for key, value in (topic.configs or {}).items()}


def _number(
    configs: Mapping[str, frozenset[str]] | None, key: str, choose: Callable[[list[int]], int]
) -> int | None:
    values = [int(value) for value in (configs or {}).get(key, ()) if value.lstrip("-").isdigit()]
    return choose(values) if values else None
