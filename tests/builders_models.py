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


def some_frames(n: int, height: int = 64, width: int = 96) -> torch.Tensor:
    """Uint8[n, height, width, 3]: noise, the same for the same n."""
    source = torch.Generator().manual_seed(n)
    return torch.randint(0, 256, (n, height, width, 3), dtype=torch.uint8, generator=source)


NO_FRAMES = {
    "float": torch.zeros((1, 64, 96, 3)),
    "planes": torch.zeros((1, 3, 64, 96), dtype=torch.uint8),
    "no batch": torch.zeros((64, 96, 3), dtype=torch.uint8),
}
"""What no model may be given."""


def a_checkpoint(path: Path, network: object) -> Path:
    """What Ultralytics would have saved at `path`."""
    torch.save({"model": network, "ema": None, "train_args": {}}, path)
    return path
