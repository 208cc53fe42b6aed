"""Ports for servers of the tests that are told their port, and may come back to it."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOW, HIGH = 20_000, 32_000
"""Below those that the kernel gives to outgoing connections: one of them may hold a port for a
moment just when its server starts again."""
_CLAIMED: list[int] = []
"""Locks of this process's ports, held until it ends."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no other process of the tests is given meanwhile.

    Raises:
        RuntimeError: there are not so many.
    """
    folder = Path(tempfile.gettempdir()) / f"frameloom-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    found = [port for port, _ in zip(_claimed(folder), range(count), strict=False)]
    if len(found) < count:
        raise RuntimeError(f"no {count} free ports from {LOW} to {HIGH}")
    return found


def _claimed(folder: Path) -> Iterator[int]:
    for port in random.Random().sample(range(LOW, HIGH), HIGH - LOW):
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _bind(port)
        except OSError:
            os.close(lock)
            continue
        _CLAIMED.append(lock)
        yield port


def _bind(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
