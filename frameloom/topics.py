"""`frameloom topics`: the topics that a configuration's routes need."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.settings import Settings
from workers.kafka_clients import PROTOCOL_OVERHEAD_BYTES, TopicSpec, create_topics, list_topics

DEAD_LETTER_HEADROOM_BYTES = 64 * 1024
"""What the `fl-*` headers may add to a record: a dead letter never has to be truncated."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic and what it is for. `role` is `input`, `output`, `dead_letter` or empty (unknown
    to the configuration); `present` says whether the broker has it."""

    name: str
    role: str
    route: str
    present: bool


def topic_specs(settings: Settings, *, partitions: int, replication: int) -> dict[str, TopicSpec]:
    """The topics of all routes by name, with record limits that fit what goes into each.

    Args:
        settings: of the worker.
        partitions: of input and output topics, ≥ 1. Dead-letter topics get one: they are few.
        replication: copies of each partition, ≥ 1.
    """
    limits = settings.limits
    input_bytes = limits.max_record_bytes + PROTOCOL_OVERHEAD_BYTES
    output_bytes = limits.max_result_bytes + PROTOCOL_OVERHEAD_BYTES
    specs: dict[str, TopicSpec] = {}

    def add(name: str, count: int, record_bytes: int) -> None:
        # A topic that several routes share gets the largest of the limits asked for.
        known = specs.get(name)
        if known is not None:
            record_bytes = max(record_bytes, int(known.configs["max.message.bytes"]))
            count = max(count, known.partitions)
        specs[name] = TopicSpec(name, count, replication, {"max.message.bytes": str(record_bytes)})

    for route in settings.routes:
        add(route.input, partitions, input_bytes)
        add(route.output, partitions, output_bytes)
        add(route.dead_letter, 1, input_bytes + DEAD_LETTER_HEADROOM_BYTES)
    return specs


async def create_route_topics(
    settings: Settings, *, partitions: int, replication: int
) -> list[TopicState]:
    """Create what is missing. Returns every topic; `present` is True where it existed before.

    Raises:
        TransientError, ConfigError: see `kafka_clients.create_topics`.
    """
    specs = topic_specs(settings, partitions=partitions, replication=replication)
    created = set(await create_topics(settings.kafka, specs.values()))
    return [TopicState(name, *_role(settings, name), present=name not in created) for name in specs]


async def list_route_topics(settings: Settings) -> list[TopicState]:
    """The routes' topics, there or not, then what else the broker has."""
    present = await list_topics(settings.kafka)
    wanted = list(topic_specs(settings, partitions=1, replication=1))
    names = wanted + [name for name in present if name not in wanted]
    return [TopicState(name, *_role(settings, name), present=name in present) for name in names]


def _role(settings: Settings, name: str) -> tuple[str, str]:
    for route in settings.routes:
        roles = {route.input: "input", route.output: "output", route.dead_letter: "dead_letter"}
        if name in roles:
            return roles[name], route.name
    return "", ""
