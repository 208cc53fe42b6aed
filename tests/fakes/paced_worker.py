"""`frameloom worker` as it is, with its own models, at a pace that is told from outside.

Arguments: PACE CONFIG, the file of a `tests.fakes.pace.Pace` and the configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import workers.detect
from frameloom.cli import main
from schemas.settings import Settings
from tests.fakes.pace import Paced
from workers.lanes import Loaded, load_lanes


def paced(pace: Path) -> Callable[[Path], list[str]]:
    """What makes the command for this worker from its configuration file."""
    module = "tests.fakes.paced_worker"
    return lambda config: [sys.executable, "-m", module, str(pace), str(config)]


def _load_paced(pace: Path) -> Callable[[Settings, Callable[[], bool]], Loaded]:
    def load(settings: Settings, stopping: Callable[[], bool]) -> Loaded:
        loaded = load_lanes(settings, stopping)
        for lane in loaded.lanes.values():
            _keep_pace(lane.model, Paced(pace))
        return loaded

    return load


def _keep_pace(model: Any, keep: Paced) -> None:
    infer = model.infer

    def paced_infer(frames: torch.Tensor) -> torch.Tensor:
        keep.wait(len(frames))
        return infer(frames)

    model.infer = paced_infer


if __name__ == "__main__":
    # Loaded, warmed up and measured first: that is at no pace.
    workers.detect.load_lanes = _load_paced(Path(sys.argv[1]))
    sys.exit(main(["worker", "--config", sys.argv[2]]))
