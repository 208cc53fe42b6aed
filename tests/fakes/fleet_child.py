"""A process that the parent of a fleet takes for a worker: it serves health and metrics, holds no
model, and behaves as its first argument says of its device (`cpu:0=serve,cpu:1=config`):

serve   until a signal, then ends with 0
config  ends with 2 at once
stay    takes no notice of the first signal, ends with 1 at the second
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from pipeline import metrics as m
from pipeline.metrics import Metrics
from schemas.settings import HttpSettings
from workers.health import Health, HealthServer
from workers.seat import take_seat

_PARENT = """
import os, sys
from frameloom.fleet import run_fleet
from schemas.settings import load_settings
from workers.device_list import plan_devices
child = [sys.executable, "-m", "tests.fakes.fleet_child", sys.argv[3]]
devices = plan_devices(sys.argv[2], lambda: 4, os.environ.get("CUDA_VISIBLE_DEVICES"))
sys.exit(run_fleet(devices, child, load_settings(sys.argv[1])))
"""


def parent(config: Path, devices: str, behaviour: str) -> list[str]:
    """The command for a fleet of such processes."""
    return [sys.executable, "-c", _PARENT, str(config), devices, behaviour]


def _say(event: str, device: str, told: list[str]) -> None:
    line = {"event": event, "device": device, "set": told}
    sys.stderr.write(json.dumps(line | {"cuda": os.environ.get("CUDA_VISIBLE_DEVICES")}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour")
    parser.add_argument("--seat-device")
    parser.add_argument("--seat-listener", type=int)
    parser.add_argument("--set", action="append")
    args = parser.parse_args()
    behaviour = dict(each.split("=") for each in args.behaviour.split(","))[args.seat_device]
    if behaviour == "config":
        return 2
    # Both wait until this thread asks for them.
    told = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, told)
    seat, metrics = take_seat(args.seat_device, args.seat_listener), Metrics()
    metrics.set(m.FREE_SLOTS, 2)
    health = Health(healthy=True, ready=True, details={"state": "running"})
    server = HealthServer(HttpSettings(), metrics.registry, lambda: health, seat.listener)
    server.start()
    _say("child_runs", seat.device, args.set)
    signal.sigwait(told)
    _say("child_told", seat.device, args.set)
    if behaviour == "stay":
        signal.sigwait(told)
        return 1
    server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
