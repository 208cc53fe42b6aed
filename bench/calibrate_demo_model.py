"""Shift the demo model's scores: `python -m bench.calibrate_demo_model WEIGHTS OUT`.

The product counts detections from confidence 0.25 on. A short training leaves scores a little high
or low as a whole, so every class logit is moved by one constant, such that 0.25 becomes the
confidence at which the lesser of recall and precision is greatest. Scenes for this come from
training seeds, not from held-out ones. The order of scores stays, so mAP does too.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch

from bench.eval_demo_model import CASES, CONF, Detection, detect, load, photographed
from bench.scenes import HELD_OUT, Match, Scene, Truth, match

FIRST_SEED = HELD_OUT - 100_000

Judged = list[tuple[list[Truth], list[Detection]]]


def gather(path: Path, scenes: int) -> Judged:
    """Truths and detections (from confidence 0.05 on) of `scenes` scenes for each demo shape."""
    model = load(path)
    judged: Judged = []
    for number, (size, shape) in enumerate(CASES):
        for i in range(scenes):
            picture, truths = Scene(FIRST_SEED + number * 1000 + i, *size).frame(5.0 + i)
            judged.append((truths, detect(model, photographed(picture), shape, conf=0.05)))
    return judged


def balance(judged: Judged) -> float:
    """The confidence, to 0.01, at which the lesser of recall and precision is greatest."""

    def lesser(conf: float) -> float:
        total = Match()
        for truths, detections in judged:
            total += match(truths, [d for d in detections if d[1] >= conf])
        return min(total.recall, total.precision)

    return max((percent / 100 for percent in range(8, 80)), key=lesser)


def shift(checkpoint: Any, conf: float) -> float:
    """Move the class logits, in place, so that scores of `conf` become `CONF`; the constant."""
    constant = math.log(CONF / (1 - CONF)) - math.log(conf / (1 - conf))
    for branch in checkpoint["model"].model[-1].cv3:
        branch[-1].bias.data += constant
    return constant


def main() -> None:
    """Parse the command line, calibrate, write."""
    parser = argparse.ArgumentParser(description="Shift the demo model's scores.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scenes", type=int, default=20, help="per shape")
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    conf = balance(gather(asked.weights, asked.scenes))
    checkpoint: Any = torch.load(asked.weights, map_location="cpu", weights_only=False)
    constant = shift(checkpoint, conf)
    torch.save(checkpoint, asked.out)
    print(f"balanced at {conf:.2f}: class logits moved by {constant:+.3f}")


if __name__ == "__main__":
    main()
