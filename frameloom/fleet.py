"""`frameloom worker --devices`: one worker process per device, behind one port."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from frameloom.children import spawn
from schemas.errors import ConfigError
from schemas.settings import Settings
from workers import fleet_health
from workers.device_list import OPTION, Device, overrides_of, plan_devices
from workers.fleet_metrics import registry_of
from workers.fleet_probe import FleetProbe
from workers.fleet_supervisor import FleetSupervisor, Started
from workers.health import HealthServer
from workers.logs import configure, get_log
from workers.restart import PATIENCE, Patience
from workers.roster import Roster

VISIBLE = "CUDA_VISIBLE_DEVICES"
_COUNT = "import torch; print('devices', torch.cuda.device_count())"
_COUNT_S = 120.0


def run_devices(
    text: str,
    settings: Settings,
    config: Path | None,
    bootstrap: str | None,
    overrides: Sequence[str],
) -> int:
    """Run a worker with these options on each device of the list. Returns the exit code of
    `Fleet.exit_code`.

    Raises:
        ConfigError: a device that is not there, or a port that cannot be listened on.
    """
    visible = os.environ.get(VISIBLE)
    devices = plan_devices(text, count_cuda, visible)
    command = [sys.executable, "-m", "frameloom", "worker"]
    if config is not None:
        command += ["--config", str(config)]
    if bootstrap is not None:
        command += ["--bootstrap", bootstrap]
    for override in overrides:
        command += ["--set", override]
    return run_fleet(devices, command, settings)


def run_fleet(
    devices: Sequence[Device],
    command: Sequence[str],
    settings: Settings,
    patience: Patience = PATIENCE,
) -> int:
    """Run `command` for each device, with what is its own appended, again when it dies; serve
    health and metrics of all. Logs of all go to standard error.

    Raises:
        ConfigError: the port cannot be listened on.
    """
    configure(settings.log)
    log = get_log("frameloom.supervisor")
    roster = Roster(device.label for device in devices)
    start = _starter(devices, command, settings)
    with contextlib.ExitStack() as stack:
        if settings.http.enabled:
            probe = FleetProbe(roster)
            stack.callback(probe.close)
            server = HealthServer(
                settings.http,
                registry_of(roster, probe),
                lambda: fleet_health.look(roster, probe, time.monotonic),
            )
            stack.callback(server.stop)
            log.info("http_listening", host=settings.http.host, port=server.start())
        return FleetSupervisor(start, roster, log, time.monotonic, patience).run()


def count_cuda() -> int:
    """How many CUDA devices torch sees. Asked in a process of its own, so that the parent holds
    neither torch nor a driver.

    Raises:
        ConfigError: it cannot be asked.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _COUNT],
            capture_output=True, text=True, timeout=_COUNT_S, check=True,
        )  # fmt: skip
        lines = [line.split() for line in asked.stdout.splitlines()]
        return next(int(line[1]) for line in lines if line[:1] == ["devices"])
    except (OSError, subprocess.SubprocessError, StopIteration, ValueError) as error:
        raise ConfigError(f"{OPTION}: torch cannot count the CUDA devices: {error}") from error


def _starter(
    devices: Sequence[Device], command: Sequence[str], settings: Settings
) -> Callable[[str], Started]:
    cores = len(os.sched_getaffinity(0))
    commands: dict[str, list[str]] = {}
    for device in devices:
        commands[device.label] = [*command, "--seat-device", device.label]
        for override in overrides_of(device, settings, len(devices), cores):
            commands[device.label] += ["--set", override]
    environments = {device.label: _environment(device) for device in devices}

    def start(label: str) -> Started:
        if not settings.http.enabled:
            return Started(spawn(commands[label], log=sys.stderr.buffer, env=environments[label]))
        # The child is given the open socket: nobody else can take the port, and it refuses as soon
        # as the child is gone.
        with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
            child = spawn(
                [*commands[label], "--seat-listener", str(listener.fileno())],
                log=sys.stderr.buffer,
                env=environments[label],
                files=(listener.fileno(),),
            )
            return Started(child, listener.getsockname()[1])

    return start


def _environment(device: Device) -> Mapping[str, str]:
    return {**os.environ, VISIBLE: device.visible}
