"""A real Apache Kafka in a container: for machines with Docker and without Java and Maven.

The same node as `tests/rig/kafka.py` starts, on one free port; only it cannot be killed and started
again on its data, so the tests that do that are skipped.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import uuid
from collections.abc import Mapping

from tests.rig.kafka import FETCH_TIMEOUT_S, common_properties, wait_until_served
from tests.rig.ports import free_ports

IMAGE = "apache/kafka:4.1.1"
"""Of the version that `pom.xml` names."""
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
"""Inside the container."""
ANSWER_S = 180.0


@functools.cache
def why_no_docker() -> str | None:
    """What keeps this machine from running a Kafka in a container; None when nothing does. Pulls
    the image at the first call on a machine."""
    if shutil.which("docker") is None:
        return "docker"
    try:
        _docker("info", timeout_s=ANSWER_S)
    except (subprocess.SubprocessError, OSError):
        return "a Docker engine that answers `docker info`"
    try:
        _docker("image", "inspect", IMAGE, timeout_s=ANSWER_S)
    except subprocess.SubprocessError:
        try:
            _docker("pull", "--quiet", IMAGE, timeout_s=FETCH_TIMEOUT_S)
        except subprocess.SubprocessError:
            return f"the image {IMAGE}, which Docker could not pull"
    return None


class KafkaContainer:
    """One broker in a container. A context manager: leaves no container behind."""

    def __init__(self) -> None:
        (self._port,) = free_ports(1)
        self._name = f"frameloom-tests-{uuid.uuid4().hex[:10]}"

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start and wait until it answers."""
        arguments = ["--detach", "--rm", "--name", self._name]
        arguments += ["--publish", f"127.0.0.1:{self._port}:{BROKER_PORT}"]
        for name, value in environment(self.bootstrap_servers).items():
            arguments += ["--env", f"{name}={value}"]
        _docker("run", *arguments, IMAGE, timeout_s=FETCH_TIMEOUT_S)
        wait_until_served(self.bootstrap_servers, self._check)

    def stop(self) -> None:
        """Remove it with its data. Safe to call when there is none."""
        _docker("rm", "--force", "--volumes", self._name, timeout_s=60.0, check=False)

    def _check(self) -> None:
        state = _docker("inspect", "--format", "{{.State.Running}}", self._name, timeout_s=ANSWER_S)
        if state.strip() != "true":
            raise RuntimeError(f"the container {self._name} ended at its start")

    def __enter__(self) -> KafkaContainer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def environment(advertised: str) -> Mapping[str, str]:
    """The variables from which the image makes its `server.properties`: `KAFKA_` and the key in
    capitals, with `_` for each dot (keys with `_` or `-` are written otherwise; we have none)."""
    properties = common_properties(nodes=1) | {
        "node.id": "1",
        "listeners": f"PLAINTEXT://:{BROKER_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{advertised}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@localhost:{CONTROLLER_PORT}",
    }
    return {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties.items()}


def _docker(*arguments: str, timeout_s: float, check: bool = True) -> str:
    done = subprocess.run(
        ["docker", *arguments], check=check, timeout=timeout_s, capture_output=True, text=True
    )
    return done.stdout
