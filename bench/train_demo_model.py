"""Train the demo model on drawn scenes: `python -m bench.train_demo_model`.

A narrow YOLOv8 (depth 0.33, width 0.125) learns from scenes that are drawn as it goes, at the
shapes that the demo uses; a picture is seen about twice. Scenes with seeds from `HELD_OUT` on are
never trained on. The loop is our own because Ultralytics' trainer wants pictures on disk and one
shape per run; model, loss and averaging are Ultralytics'.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Threads that spin while they wait lose most of a shared machine's time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_CONFIG_DIR", f"{tempfile.gettempdir()}/frameloom-ultralytics")

import cv2
import numpy as np
import torch
import ultralytics
from ultralytics.cfg import get_cfg
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import YAML
from ultralytics.utils.torch_utils import ModelEMA

from bench.scene_batches import batches
from bench.scenes import CLASSES


def build() -> Any:
    """The untrained `DetectionModel`: Ultralytics' YOLOv8 at depth 0.33 and width 0.125."""
    recipe: dict[str, Any] = YAML.load(
        str(Path(ultralytics.__file__).parent / "cfg/models/v8/yolov8.yaml")
    )
    recipe["scales"] = {"n": [0.33, 0.125, 1024]}
    recipe["scale"] = "n"
    recipe["nc"] = len(CLASSES)
    recipe.pop("yaml_file", None)
    network: Any = DetectionModel
    model = network(recipe, ch=3, nc=len(CLASSES), verbose=False)
    model.names = dict(enumerate(CLASSES))
    model.args = get_cfg()
    return model


def optimiser_for(model: torch.nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW; only convolution weights decay."""
    decay = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
    plain = [p for p in model.parameters() if p.ndim <= 1 and p.requires_grad]
    groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99))


def store(model: Any, path: Path, pictures: int) -> None:
    """Write the model as an Ultralytics checkpoint: half precision, no optimiser, no paths."""
    kept = copy.deepcopy(model).half().eval()
    kept.args = {"task": "detect", "imgsz": 448, "model": "yolov8-0.125", "data": "bench.scenes"}
    kept.yaml = {k: v for k, v in kept.yaml.items() if k != "yaml_file"}
    if hasattr(kept, "criterion"):
        del kept.criterion
    for p in kept.parameters():
        p.requires_grad = False
    checkpoint = {
        "date": None,
        "version": ultralytics.__version__,
        "license": "AGPL-3.0",
        "epoch": -1,
        "model": kept,
        "ema": None,
        "optimizer": None,
        "train_args": {**kept.args, "pictures": pictures},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    torch.save(checkpoint, fresh)
    fresh.replace(path)


@dataclass(frozen=True, slots=True)
class Budget:
    """When training ends: after so many pictures or minutes. The rate falls towards that end."""

    pictures: int
    minutes: float

    def spent(self, pictures: int, seconds: float) -> float:
        """The share used up, 0..1."""
        return min(max(pictures / self.pictures, seconds / 60 / self.minutes), 1.0)


def train(budget: Budget, seed: int, rate: float, start: Path | None, out: Path) -> None:
    """Learn until the budget is spent; averaged weights go to `out` now and then and at the end."""
    torch.manual_seed(seed)
    model = build()
    if start is not None:
        known: Any = torch.load(start, map_location="cpu", weights_only=False)["model"]
        model.load_state_dict(known.float().state_dict())
    model.train()
    optimiser = optimiser_for(model, rate)
    ema = ModelEMA(model, decay=0.998, tau=100)
    seen, began, sums, count = 0, time.monotonic(), np.zeros(3), 0
    warm = 600 if start is None else 150
    next_store = 500
    for step, batch in enumerate(batches(seed, budget.pictures), start=1):
        seen += batch.pictures.shape[0]
        share = budget.spent(seen, time.monotonic() - began)
        now = rate * min(seen / warm, 1.0) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))
        for group in optimiser.param_groups:
            group["lr"] = now
        fed = {
            "img": batch.pictures.float() / 255,
            "cls": batch.classes,
            "bboxes": batch.boxes,
            "batch_idx": batch.owner,
        }
        losses, parts = model(fed)
        optimiser.zero_grad(set_to_none=True)
        (losses.sum() / batch.pictures.shape[0]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        ema.update(model)
        sums, count = sums + [float(v) for v in list(parts.values())[:3]], count + 1
        if step % 25 == 0:
            box, cls, dfl = sums / count
            pace = seen / (time.monotonic() - began)
            print(
                f"{seen} ({share:.0%}) box {box:.3f} cls {cls:.3f} dfl {dfl:.3f}"
                f" rate {now:.5f} {pace:.1f}/s",
                flush=True,
            )
            sums, count = np.zeros(3), 0
        if seen >= next_store:
            next_store += 500
            store(ema.ema, out, seen)
        if share >= 1.0:
            break
    store(ema.ema, out, seen)


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=12_000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.003, help="peak learning rate")
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--out", type=Path, default=Path(".cache/demo-model/last.pt"))
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    cv2.setNumThreads(1)
    train(Budget(asked.pictures, asked.minutes), asked.seed, asked.rate, asked.start, asked.out)


if __name__ == "__main__":
    main()
