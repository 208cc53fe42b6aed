"""Which broker the tests run against: one named in the environment, else real Kafka from its jars,
else real Kafka in a container, else the embedded one, with the tests that need more skipped by
name."""

from __future__ import annotations

import functools
import os
import subprocess
from enum import Enum

from tests.rig.docker import why_no_docker
from tests.rig.kafka import fetch_jars, missing_tools

KAFKA_VARIABLE = "FRAMELOOM_TEST_KAFKA"
"""Names a broker (`host:port`) to test against, in place of one that the tests start."""


class BrokerKind(Enum):
    """Where the session's broker comes from."""

    NAMED = "named"
    RIG = "rig"
    DOCKER = "docker"
    EMBEDDED = "embedded"


def named_broker() -> str | None:
    """The broker that the environment names."""
    return os.environ.get(KAFKA_VARIABLE) or None


@functools.cache
def why_no_rig() -> str | None:
    """What keeps this machine from running a Kafka of its own; None when nothing does. Fetches
    the jars at the first call on a machine."""
    if missing := missing_tools():
        return f"real Kafka needs {' and '.join(missing)}, or {KAFKA_VARIABLE}=host:port"
    try:
        fetch_jars()
    except (subprocess.SubprocessError, OSError) as error:
        return f"real Kafka needs its jars, which Maven could not fetch ({type(error).__name__})"
    return None


def broker_kind() -> BrokerKind:
    """The best there is."""
    if named_broker() is not None:
        return BrokerKind.NAMED
    if why_no_rig() is None:
        return BrokerKind.RIG
    return BrokerKind.EMBEDDED if why_no_docker() else BrokerKind.DOCKER


def why_no_real_kafka() -> str | None:
    """What this machine lacks for a real Kafka of any kind; None when there is one."""
    if broker_kind() is not BrokerKind.EMBEDDED:
        return None
    return f"{why_no_rig()}, or {why_no_docker()}"
