"""A real worker on a lane without weights, started as the parent of a fleet starts one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.ports import Lane
from schemas.settings import Settings, load_settings
from tests.fakes.lane import a_lane
from workers.detect import Loaded, run_worker
from workers.seat import take_seat

# Not a worker itself: a parent is small and stays so.
_PARENT = """
import sys
from frameloom.fleet import count_cuda, run_fleet
from schemas.settings import load_settings
from workers.device_list import plan_devices
worker = [sys.executable, "-m", "tests.fakes.fleet_worker", sys.argv[1]]
sys.exit(run_fleet(plan_devices("cpu,cpu", count_cuda), worker, load_settings(sys.argv[1])))
"""


def two_processors(config: Path) -> list[str]:
    """The command for two such workers, as `frameloom worker --devices cpu,cpu` has them."""
    return [sys.executable, "-c", _PARENT, str(config)]


def load(settings: Settings) -> Loaded:
    """A lane per route without weights."""
    lanes: dict[str, Lane] = {route.name: a_lane() for route in settings.routes}
    return Loaded(lanes, "cpu")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--seat-device")
    parser.add_argument("--seat-listener", type=int)
    parser.add_argument("--set", action="append")
    args = parser.parse_args()
    sys.exit(
        run_worker(
            load_settings(args.config, overrides=args.set),
            load,
            take_seat(args.seat_device, args.seat_listener),
        )
    )
