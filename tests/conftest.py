"""Shared fixtures: a broker and topic names that no other test uses."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from frameloom.broker import EmbeddedBroker

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("frameloom", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("frameloom")

BROKER_VARIABLE = "FRAMELOOM_TEST_BROKER"
"""Names a broker (`host:port`) to test against; without it the embedded one is started."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of the session's broker."""
    named = os.environ.get(BROKER_VARIABLE)
    if named:
        yield named
        return
    log = Path(tmp_path_factory.mktemp("broker")) / "broker.log"
    with EmbeddedBroker(log_path=log) as embedded:
        yield embedded.bootstrap_servers


@pytest.fixture(scope="session")
def embedded_broker(broker: str) -> str:
    """The session's broker where it is the embedded one; else the test is skipped."""
    if os.environ.get(BROKER_VARIABLE):
        pytest.skip(f"the embedded broker only, and {BROKER_VARIABLE} names another")
    return broker


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes a name (topic, group) that no other test and no earlier run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"
