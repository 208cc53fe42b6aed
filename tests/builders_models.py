"""Very narrow networks and their checkpoints for tests. Nothing here was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import ultralytics
from ultralytics.nn import tasks
from ultralytics.utils import YAML

CONFIGS = Path(ultralytics.__file__).parent / "cfg/models"


def a_network(kind: str = "v8/yolov8", *, width: float = 0.0625, **changes: Any) -> Any:
    """A very narrow network of one of Ultralytics' architectures, e.g. `v8/yolov8-seg`.

    `changes` go into the architecture: `nc=3`, `channels=1`.
    """
    recipe: Any = YAML.load(str(CONFIGS / f"{kind}.yaml"))
    recipe |= {"scales": {"n": [0.33, width, 1024]}, "scale": "n", **changes}
    task = tasks.guess_model_task(recipe)
    make = {
        "detect": tasks.DetectionModel,
        "segment": tasks.SegmentationModel,
        "pose": tasks.PoseModel,
        "obb": tasks.OBBModel,
        "classify": tasks.ClassificationModel,
    }[task]
    network: Any = make(recipe, ch=recipe.get("channels", 3), verbose=False)
    network.names = {i: f"class{i}" for i in range(int(recipe["nc"]))}
    network.args = {"task": task}
    network.task = task
    return network


def a_checkpoint(path: Path, network: object) -> Path:
    """What Ultralytics would have saved at `path`."""
    torch.save({"model": network, "ema": None, "train_args": {}}, path)
    return path
