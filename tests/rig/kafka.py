"""A real Apache Kafka for the tests: KRaft nodes from Maven Central's jars on free ports.

The jars are fetched once by the ordinary Maven client into a cache outside the tree
(`$XDG_CACHE_HOME/frameloom/kafka-<version>`). A node can be stopped, killed and started again on
the same data and the same ports, so that clients meet it again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import TransientError
from schemas.settings import KafkaSettings
from tests.rig.ports import free_ports
from workers.kafka_clients import list_topics

CACHE_VARIABLE = "FRAMELOOM_TEST_CACHE"
"""Names the folder for the jars, where the usual one of caches is something else to the tests."""
POM = Path(__file__).with_name("pom.xml")
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 120.0
FETCH_TIMEOUT_S = 600.0
PAUSE_S = 0.1


def missing_tools() -> list[str]:
    """What a real broker needs and this machine lacks."""
    return [tool for tool in ("java", "mvn") if shutil.which(tool) is None]


def cache_folder() -> Path:
    """Where the jars are kept, and shared by every checkout on this machine."""
    named = os.environ.get(CACHE_VARIABLE) or os.environ.get("XDG_CACHE_HOME")
    return Path(named or Path.home() / ".cache")


def fetch_jars() -> Path:
    """The folder with the broker's jars; fetched at the first call on a machine."""
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    jars = cache_folder() / "frameloom" / f"kafka-{digest}"
    if jars.is_dir():
        return jars
    partial = jars.with_name(f"{jars.name}.{uuid.uuid4().hex}")
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    subprocess.run(
        [*command, f"-DoutputDirectory={partial}"],
        check=True,
        timeout=FETCH_TIMEOUT_S,
        stdout=subprocess.DEVNULL,
    )
    try:
        partial.rename(jars)
    except OSError:  # another run was first
        shutil.rmtree(partial)
    return jars


def kafka_version() -> str:
    """Of the jars."""
    (jar,) = fetch_jars().glob("kafka_2.13-*.jar")
    return jar.stem.removeprefix("kafka_2.13-")


@dataclass(frozen=True)
class NodePlan:
    """One node of a cluster: where it listens and what is special about it.

    Attributes:
        proxied_port: a second listener, which tells its clients to come to `proxy_port` instead:
            there a proxy can cut or delay what passes. None without.
        proxy_port: where that proxy has to listen.
        listeners: further ones by name, with their ports. A name is a protocol of Kafka's, or
            `MTLS`: TLS that wants a certificate of its clients.
        scram: credentials that exist from the start, as StorageTool writes them.
        extra: properties that count instead of ours.
    """

    node_id: int
    broker_port: int
    controller_port: int
    proxied_port: int | None = None
    proxy_port: int | None = None
    listeners: Mapping[str, int] = field(default_factory=dict[str, int])
    scram: Sequence[str] = ()
    extra: Mapping[str, str] = field(default_factory=dict[str, str])


class KafkaNode:
    """One broker-and-controller process on a data folder of its own."""

    def __init__(self, folder: Path, plan: NodePlan, voters: Sequence[NodePlan]) -> None:
        self.plan = plan
        self._folder = folder
        self._voters = voters
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._config = folder / "server.properties"
        self._config.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties().items())
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.plan.broker_port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the node is not running")
        return self._process.pid

    def format(self, cluster_id: str) -> None:
        """Prepare the data folder, once in its life."""
        standalone = len(self._voters) == 1
        command = [*self._java("-Xmx128m"), "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_id, "-c", str(self._config)]
        command += ["--standalone"] if standalone else []
        for credential in self.plan.scram:
            command += ["--add-scram", credential]
        subprocess.run(command, check=True, timeout=START_TIMEOUT_S, stdout=subprocess.DEVNULL)

    def launch(self) -> None:
        """Start the process without waiting for it to serve."""
        if self._process is not None:
            raise RuntimeError("the node is running")
        log = (self._folder / "node.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [*self._java("-Xmx512m"), "kafka.Kafka", str(self._config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start(self) -> None:
        """Start and wait until the node answers."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Until the node answers a request, with a deadline."""
        wait_until_served(self.address, self._check)

    def _check(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"Kafka ended at start; see {self._folder / 'node.log'}")

    def stop(self) -> None:
        """End in order. Safe to call when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End at once, as by a power cut."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _java(self, heap: str) -> list[str]:
        jars = fetch_jars()
        flags = [heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        return ["java", *flags, "-cp", f"{jars}/*"]

    def _properties(self) -> dict[str, str]:
        plan, nodes = self.plan, len(self._voters)
        listeners = advertised = f"PLAINTEXT://127.0.0.1:{plan.broker_port}"
        if plan.proxied_port is not None:
            listeners += f",PROXIED://127.0.0.1:{plan.proxied_port}"
            advertised += f",PROXIED://127.0.0.1:{plan.proxy_port}"
        for name, port in plan.listeners.items():
            listeners += f",{name}://127.0.0.1:{port}"
            advertised += f",{name}://127.0.0.1:{port}"
        properties = common_properties(nodes) | {
            "node.id": str(plan.node_id),
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{plan.controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MTLS:SSL,"
                "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
            ),
            "log.dirs": str(self._folder / "data"),
        }
        if nodes == 1:
            properties["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{plan.controller_port}"
        else:
            properties["controller.quorum.voters"] = ",".join(
                f"{v.node_id}@127.0.0.1:{v.controller_port}" for v in self._voters
            )
        return properties | dict(plan.extra)


class KafkaCluster:
    """`nodes` brokers that know each other. A context manager: leaves no process behind."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        proxied: bool = False,
        listeners: Sequence[str] = (),
        scram: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
    ) -> None:
        ports = iter(free_ports((4 + len(listeners)) * nodes))
        plans = [
            NodePlan(
                node_id=index + 1,
                broker_port=next(ports),
                controller_port=next(ports),
                proxied_port=next(ports) if proxied else None,
                proxy_port=next(ports) if proxied else None,
                listeners={name: next(ports) for name in listeners},
                scram=scram,
                extra=dict(extra or {}),
            )
            for index in range(nodes)
        ]
        self.nodes = [KafkaNode(folder / f"node-{plan.node_id}", plan, plans) for plan in plans]
        self._cluster_id = "frameloom-rig-cluster1"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.format(self._cluster_id)
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> KafkaCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def common_properties(nodes: int) -> dict[str, str]:
    """What every broker of the tests has, wherever it runs."""
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "auto.create.topics.enable": "false",
        "message.max.bytes": "8388608",
        "replica.fetch.max.bytes": "8454144",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.replication.factor": str(min(nodes, 3)),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(min(nodes, 3)),
        "transaction.state.log.min.isr": str(min(nodes, 2)),
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "default.replication.factor": str(min(nodes, 3)),
        "log.flush.interval.messages": "10000",
    }


def wait_until_served(address: str, check: Callable[[], None]) -> None:
    """Until the broker at this `host:port` answers a request, with a deadline. `check` raises when
    it never will."""
    deadline = time.monotonic() + START_TIMEOUT_S
    kafka = KafkaSettings(bootstrap_servers=address)
    while True:
        check()
        try:
            if _listens(address):
                asyncio.run(list_topics(kafka))
                return
        except TransientError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"Kafka at {address} did not start")
        time.sleep(PAUSE_S)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0
