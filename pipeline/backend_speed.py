"""How fast models are, side by side: what `backend: auto` goes by.

On a CPU it is processor time, over the cores: what others run meanwhile lengthens the time on the
clock several times over, and hardly the processor time, which is also what bounds a busy worker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import torch

from pipeline.bucket import Bucket
from pipeline.letterbox import PAD_VALUE
from pipeline.ports import Clock, Model

BUDGET_S = 5.0
"""Time on the clock for all rounds together; the one under way when it is over is the last."""
MOST_ROUNDS = 5
SIZES = (1, 4)
"""Batches that are measured, where a bucket takes them."""

Case = tuple[int, int, int]
"""Height, width, batch size."""


def machine_clock(device: str, threads: int) -> Clock:
    """Seconds of this process: on a CPU processor time over the threads that a model has there (0:
    one per core), on a GPU time on the clock."""
    if device != "cpu":
        return time.perf_counter
    over = threads or len(os.sched_getaffinity(0))
    return lambda: time.process_time() / over


def run_all(model: Model, buckets: Sequence[Bucket]) -> None:
    """Run every case once, which pays for what first runs cost.

    Raises:
        Exception: whatever the model raises.
    """
    for case in _cases(buckets):
        _seconds(model, case, time.perf_counter)


def measure(
    models: Mapping[str, Model], buckets: Sequence[Bucket], clock: Clock
) -> dict[str, dict[str, float]]:
    """Backend → `HxW×n` → pictures per second: the best of some rounds in which all take turns,
    so that whatever else the machine does meets all of them alike. All have run before."""
    cases = _cases(buckets)
    best = {name: dict.fromkeys(cases, float("inf")) for name in models}
    give_up_at = time.monotonic() + BUDGET_S
    for _ in range(MOST_ROUNDS):
        for case in cases:
            for name, model in models.items():
                best[name][case] = min(best[name][case], _seconds(model, case, clock))
        if time.monotonic() > give_up_at:
            break
    return {
        name: {f"{h}x{w}×{n}": round(n / seconds, 1) for (h, w, n), seconds in each.items()}
        for name, each in best.items()
    }


def overall(img_per_s: Mapping[str, float]) -> float:
    """One figure for all cases: their harmonic mean, pictures per second if each case has as many
    pictures."""
    return len(img_per_s) / sum(1 / max(speed, 1e-9) for speed in img_per_s.values())


def _cases(buckets: Sequence[Bucket]) -> list[Case]:
    """Height, width and batch size. A shape and the same one turned cost alike: one is enough."""
    seen: dict[tuple[int, int], Bucket] = {}
    for bucket in sorted(buckets, key=lambda b: (b.height > b.width, -b.max_batch)):
        low, high = sorted((bucket.height, bucket.width))
        seen.setdefault((low, high), bucket)
    return [
        (b.height, b.width, n)
        for b in seen.values()
        for n in sorted({min(size, b.max_batch) for size in SIZES})
    ]


def _seconds(model: Model, case: Case, clock: Clock) -> float:
    height, width, n = case
    frames = torch.full((n, height, width, 3), PAD_VALUE, dtype=torch.uint8, device=model.device)
    began_at = clock()
    raw = model.infer(frames)
    if raw.is_cuda:
        torch.cuda.synchronize(raw.device)
    return max(clock() - began_at, 1e-9)
