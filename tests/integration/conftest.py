"""Fixtures of the tests against a broker."""

from __future__ import annotations

import asyncio

import pytest

from schemas.settings import KafkaSettings
from tests.integration.kit import Unique
from workers.kafka_clients import TopicSpec, create_topics


@pytest.fixture
def topic(broker: str, unique: Unique) -> str:
    """A new topic of two partitions."""
    name = unique("frames")
    asyncio.run(create_topics(KafkaSettings(bootstrap_servers=broker), [TopicSpec(name, 2)]))
    return name
