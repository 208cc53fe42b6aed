"""The embedded broker starts, answers, refuses a taken port, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from frameloom.broker import BrokerError, EmbeddedBroker


def _connects(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), 2.0).close()
    except OSError:
        return False
    return True


def test_answers_while_it_runs_and_not_afterwards(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    with EmbeddedBroker(log_path=log) as broker:
        address, pid = broker.bootstrap_servers, broker.pid
        assert _connects(address)
    assert not _connects(address)
    assert not psutil.pid_exists(pid)
    assert "listening on" in log.read_text()


def test_two_brokers_take_different_ports() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers


def test_takes_the_port_it_is_given_twice_in_a_row() -> None:
    with EmbeddedBroker() as broker:
        port = int(broker.bootstrap_servers.split(":")[1])
    with EmbeddedBroker(port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


def test_a_taken_port_is_a_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port}"):
            EmbeddedBroker(port).start()


def test_no_address_before_the_start_and_stop_is_repeatable() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(BrokerError):
        _ = broker.bootstrap_servers
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_dies_with_a_killed_parent() -> None:
    script = textwrap.dedent("""
        import sys
        from frameloom.broker import EmbeddedBroker
        print(EmbeddedBroker().start().pid, flush=True)
        sys.stdin.read()
    """)
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        os.kill(parent.pid, signal.SIGKILL)
        # Raises TimeoutExpired if it lives on.
        child.wait(timeout=120)
    finally:
        parent.kill()
        parent.communicate()
