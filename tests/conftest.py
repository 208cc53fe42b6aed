"""Shared fixtures: brokers, and topic names that no other test uses."""

from __future__ import annotations

import logging
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.workermanage import WorkerController

from frameloom.broker import EmbeddedBroker
from tests.rig.choice import (
    BrokerKind,
    broker_kind,
    named_broker,
    why_no_real_kafka,
    why_no_rig,
)
from tests.rig.docker import KafkaContainer
from tests.rig.kafka import CACHE_VARIABLE, KafkaCluster, cache_folder
from tests.rig.shares import SCENARIOS, Shares, how_it_ended

# How long an example takes says how busy the machine is, not whether the code is right. The same
# tree gets the same examples, so that a run says something of the tree; new ones are looked for
# with `--hypothesis-profile search`, and what they find stays as an `@example`.
settings.register_profile(
    "frameloom", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", settings.get_profile("frameloom"), derandomize=False, max_examples=1_000
)
settings.load_profile("frameloom")
# Started in the background by a shell, a process ignores Ctrl-C, and so would the programs that the
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# As the command line does it: torch's idle threads sleep. Read when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The broker's jars stay where they were; other processes of this run are told, too.
os.environ.setdefault(CACHE_VARIABLE, str(cache_folder()))
# Exported models and the choices of `backend: auto` outlive a run, and stay out of the user's own.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / ".cache")


_LONGEST_FIRST = (SCENARIOS, "tests/scenario", "tests/integration", "tests")
"""Where the suite runs on several processes, short tests fill the end up."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Shares:
    """In the order collected."""
    config.option.loadscopereorder = False
    return Shares(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object | None) -> None:
    """One that died says how."""
    if error:
        reporter = node.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(f"\n{node.gateway.id} died: {how_it_ended(node)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several processes: the longest first."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    items.sort(
        key=lambda item: next(
            place for place, folder in enumerate(_LONGEST_FIRST) if item.nodeid.startswith(folder)
        )
    )


@pytest.fixture(scope="session")
def kafka_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A real Kafka of one node, which its test may stop, kill and start again; else skipped."""
    if lacking := why_no_rig():
        pytest.skip(lacking)
    with KafkaCluster(tmp_path_factory.mktemp("kafka"), proxied=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_container() -> Iterator[KafkaContainer]:
    """A real Kafka in a container."""
    with KafkaContainer() as container:
        yield container


@pytest.fixture(scope="session")
def real_kafka(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers of a real Kafka; the test is skipped where there is none."""
    if lacking := why_no_real_kafka():
        pytest.skip(lacking)
    named = named_broker()
    if named is not None:
        return named
    fixture = "kafka_container" if broker_kind() is BrokerKind.DOCKER else "kafka_rig"
    started: KafkaCluster | KafkaContainer = request.getfixturevalue(fixture)
    return started.bootstrap_servers


@pytest.fixture(scope="session")
def embedded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of an embedded broker."""
    log = Path(tmp_path_factory.mktemp("broker")) / "broker.log"
    with EmbeddedBroker(log_path=log) as embedded:
        yield embedded.bootstrap_servers


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> str:
    """Bootstrap servers of the session's broker: the best there is (`tests/rig/choice.py`)."""
    embedded = broker_kind() is BrokerKind.EMBEDDED
    return request.getfixturevalue("embedded_broker" if embedded else "real_kafka")


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Makes a name (topic, group) that no other test and no earlier run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def unconfigured() -> Iterator[None]:
    """Leave logging as other tests expect it."""
    root, library = logging.getLogger(), logging.getLogger("aiokafka")
    handlers, level, library_level = list(root.handlers), root.level, library.level
    yield
    root.handlers[:], root.level, library.level = handlers, level, library_level
    structlog.reset_defaults()
