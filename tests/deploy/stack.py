"""The stack's containers without containers: their commands and environments on this machine.

Host names and ports of the stack become ports of the loopback address, and the folders that are
volumes become folders of the test, and there is more time to drain; nothing else differs from what
Docker would start.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from schemas.errors import TransientError
from schemas.settings import KafkaSettings
from tests.deploy.compose import ROOT, command_of, copied, kafka_properties, services
from tests.rig.kafka import fetch_jars
from tests.rig.ports import free_ports
from workers.kafka_clients import list_topics

DEADLINE_S = 180.0


class Stack:
    """Kafka and our commands in `folder`. A context manager: leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        self.app = folder / "app"
        self.kept = folder / "journal"
        self._folder = folder
        self._services = services()
        self._processes: list[subprocess.Popen[bytes]] = []
        inside, outside, controller, self.http_port = free_ports(4)
        self.broker = f"127.0.0.1:{inside}"
        self._ports = {"9092": inside, "9094": outside, "9093": controller}
        self.app.mkdir(parents=True)
        for source in copied(ROOT / "deploy" / "Dockerfile"):
            place = self.app / source.rstrip("/")
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(ROOT / source.rstrip("/"))

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()

    def start_kafka(self) -> None:
        """Format the data folder and start the node, as the image's own script does."""
        environment = self._services["kafka"]["environment"]
        properties = {
            name: self._here(value) for name, value in kafka_properties(environment).items()
        }
        properties["log.dirs"] = str(self._folder / "kafka")
        config = self._folder / "kafka.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        java = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{fetch_jars()}/*"]
        tool = [*java, "kafka.tools.StorageTool", "format", "-c", str(config)]
        subprocess.run(
            [*tool, f"--cluster-id={environment['CLUSTER_ID']}"],
            check=True, timeout=DEADLINE_S, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        heap = environment["KAFKA_HEAP_OPTS"].split()
        self._launch("kafka", [java[0], *heap, *java[1:], "kafka.Kafka", str(config)], os.environ)
        self._wait_for_kafka()

    def start(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        """A service's command in the background; `more` are further options."""
        return self._launch(name, [*self._words(name), *more], self._environment(name))

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A service's command to its end; `words` instead of it, as `docker compose run` does."""
        return subprocess.run(
            self._words(name, *words),
            cwd=self.app, env=self._environment(name), capture_output=True, text=True,
            timeout=DEADLINE_S, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def is_healthy(self, name: str) -> bool:
        """The service's own health check."""
        kind, python, *words = self._services[name]["healthcheck"]["test"]
        assert (kind, python) == ("CMD", "python")
        words = [word.replace("127.0.0.1:9464", f"127.0.0.1:{self.http_port}") for word in words]
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, timeout=DEADLINE_S, check=False
        )
        return done.returncode == 0

    def stop(self, name: str, process: subprocess.Popen[bytes]) -> int:
        """With the signal of `docker compose stop`; the exit code."""
        service = self._services[name]
        process.send_signal(signal.Signals[service.get("stop_signal", "SIGTERM")])
        return process.wait(2 * DEADLINE_S)

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _words(self, name: str, *words: str) -> list[str]:
        chosen = list(words) or command_of(self._services[name])
        return [sys.executable, "-m", "frameloom", *chosen]

    def _environment(self, name: str) -> dict[str, str]:
        stated: Mapping[str, Any] = self._services[name].get("environment", {})
        outside = {k: v for k, v in os.environ.items() if not k.startswith("FRAMELOOM")}
        moved = {
            "FRAMELOOM__KAFKA__BOOTSTRAP_SERVERS": self.broker,
            "FRAMELOOM__HTTP__HOST": "127.0.0.1",
            "FRAMELOOM__HTTP__PORT": str(self.http_port),
            "FRAMELOOM__LIFECYCLE__JOURNAL_DIR": str(self.kept),
            "PYTHONDONTWRITEBYTECODE": "1",
            # A machine may be too busy for what an idle one drains in time.
            "FRAMELOOM__LIFECYCLE__DRAIN_TIMEOUT_MS": str(round(DEADLINE_S * 1e3)),
            "FRAMELOOM__KAFKA__REBALANCE_TIMEOUT_MS": str(round(2 * DEADLINE_S * 1e3)),
        }
        return outside | {key: str(value) for key, value in stated.items()} | moved

    def _here(self, value: str) -> str:
        """A listener or a voter of the stack's network, on the loopback address."""
        for port, free in self._ports.items():
            value = value.replace(f"kafka:{port}", f"127.0.0.1:{free}")
            value = value.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
            value = value.replace(f"//:{port}", f"//127.0.0.1:{free}")
        return value

    def _launch(
        self, name: str, command: list[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.app, env=dict(environment), stdout=log, stderr=log,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _wait_for_kafka(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        host, port = self.broker.split(":")
        while True:
            try:
                # Asked like this first: the client says a line for each try that fails.
                socket.create_connection((host, int(port)), timeout=1).close()
                asyncio.run(list_topics(KafkaSettings(bootstrap_servers=self.broker)))
            except (OSError, TransientError):
                ended = self._processes[-1].poll() is not None
                if ended or time.monotonic() > deadline:
                    raise AssertionError(self.log("kafka")) from None
                time.sleep(0.2)
            else:
                return
