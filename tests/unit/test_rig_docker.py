"""The container rig, on a `docker` that writes down what it is told and starts a broker of ours."""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig import choice, docker
from tests.rig.choice import BrokerKind
from tests.rig.docker import IMAGE, KafkaContainer, environment, why_no_docker

DOCKER = """\
#!{python}
import json, os, sys
told = sys.argv[1:]
with open(os.environ["DOCKER_TOLD"], "a") as file:
    file.write(json.dumps(told) + "\\n")
if told[0] in os.environ.get("DOCKER_FAILS", "").split():
    sys.exit(1)
if told[0] == "inspect":
    print(os.environ.get("DOCKER_STATE", "true"))
"""


class FakeDocker:
    """An executable of that name in front of `PATH`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._told = folder / "told"
        self._patch = patch
        self._told.touch()
        program = folder / "docker"
        program.write_text(DOCKER.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        patch.setenv("DOCKER_TOLD", str(self._told))

    def fails(self, *commands: str) -> None:
        self._patch.setenv("DOCKER_FAILS", " ".join(commands))

    def told(self, command: str) -> list[list[str]]:
        """The arguments of each call of this command."""
        calls = [json.loads(line) for line in self._told.read_text().splitlines()]
        return [call[1:] for call in calls if call[0] == command]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    why_no_docker.cache_clear()
    yield FakeDocker(tmp_path, monkeypatch)
    why_no_docker.cache_clear()


def test_a_container_is_run_with_the_rigs_settings_and_removed(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    def wait(address: str, check: object) -> None:
        served.append(address)
        check()

    monkeypatch.setattr(docker, "wait_until_served", wait)
    with KafkaContainer() as container:
        assert served == [container.bootstrap_servers]
        assert fake.told("rm") == []
    (run,) = fake.told("run")
    assert run[-1] == IMAGE
    options = dict(itertools.pairwise(run))
    host, port = container.bootstrap_servers.split(":")
    assert options["--publish"] == f"{host}:{port}:9092"
    given = dict(each.split("=", 1) for flag, each in itertools.pairwise(run) if flag == "--env")
    assert given == environment(container.bootstrap_servers)
    assert fake.told("rm") == [["--force", "--volumes", options["--name"]]]


def test_the_settings_are_those_of_the_rig() -> None:
    given = environment("127.0.0.1:4711")
    assert given["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://127.0.0.1:4711"
    assert given["KAFKA_MESSAGE_MAX_BYTES"] == "8388608"
    assert given["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert given["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert given["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == "1"
    assert given["KAFKA_PROCESS_ROLES"] == "broker,controller"


def test_a_container_that_ends_at_its_start_is_said_to_and_removed(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_STATE", "false")
    with pytest.raises(RuntimeError, match="ended at its start"), KafkaContainer():
        pass
    assert len(fake.told("rm")) == 1


def test_docker_is_used_after_the_jars_and_before_the_embedded_broker(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(choice.KAFKA_VARIABLE, raising=False)
    assert why_no_docker() is None
    assert fake.told("pull") == []
    for lacking, kind in ((None, BrokerKind.RIG), ("java", BrokerKind.DOCKER)):
        monkeypatch.setattr(choice, "why_no_rig", lambda lacking=lacking: lacking)
        assert choice.broker_kind() is kind
        assert choice.why_no_real_kafka() is None
    monkeypatch.setenv(choice.KAFKA_VARIABLE, "127.0.0.1:1")
    assert choice.broker_kind() is BrokerKind.NAMED


@pytest.mark.parametrize(
    ("fails", "why"), [(("info",), "docker info"), (("image", "pull"), f"the image {IMAGE}")]
)
def test_what_docker_lacks_is_said(
    fake: FakeDocker, monkeypatch: pytest.MonkeyPatch, fails: tuple[str, ...], why: str
) -> None:
    fake.fails(*fails)
    monkeypatch.delenv(choice.KAFKA_VARIABLE, raising=False)
    monkeypatch.setattr(choice, "why_no_rig", lambda: "real Kafka needs java")
    assert choice.broker_kind() is BrokerKind.EMBEDDED
    lacking = choice.why_no_real_kafka()
    assert lacking is not None
    assert lacking.startswith("real Kafka needs java, or ")
    assert why in lacking


def test_an_image_that_is_not_there_is_pulled(fake: FakeDocker) -> None:
    fake.fails("image")
    assert why_no_docker() is None
    assert fake.told("pull") == [["--quiet", IMAGE]]


def test_the_image_is_of_the_version_of_the_jars() -> None:
    pom = Path(docker.__file__).with_name("pom.xml").read_text()
    assert f"<version>{IMAGE.rpartition(':')[2]}</version>" in pom


def test_a_machine_without_docker_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    why_no_docker.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_docker() == "docker"
    why_no_docker.cache_clear()
