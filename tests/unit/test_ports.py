"""Ports of the tests' servers: nobody else's, now and later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig import ports
from tests.rig.ports import HIGH, LOW, free_ports

_ELSEWHERE = """
import sys
from tests.rig import ports
ports.LOW, ports.HIGH = int(sys.argv[1]), int(sys.argv[1]) + 1
print(ports.free_ports(1))
"""


def test_no_port_is_given_twice() -> None:
    found = [port for _ in range(20) for port in free_ports(3)]
    assert len(set(found)) == 60
    assert all(LOW <= port < HIGH for port in found)


def test_no_other_process_is_given_it() -> None:
    (port,) = free_ports(1)
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, str(port)],
        cwd=Path(ports.__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "no 1 free ports" in done.stderr, done


def test_there_may_be_none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(ports, "LOW", port)
    monkeypatch.setattr(ports, "HIGH", port + 1)
    with pytest.raises(RuntimeError, match="no 1 free ports"):
        free_ports(1)
