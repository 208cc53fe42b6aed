"""Calibration: how long the model takes, by shape and batch size, measured on the device itself.

Quick by default: few sizes, in about two seconds. A size that the time left does not allow is left
out, so that a large model on a slow device starts about as soon as without. Rounds repeat all
sizes and the best one counts, on a CPU in processor time: what else the machine does can only make
a run longer, and what it does for long is found out by the batches (`pipeline/surface.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from pipeline.cuda_runtime import device_errors
from pipeline.exported import Shape
from pipeline.letterbox import PAD_VALUE
from pipeline.ports import Clock, Model


@dataclass(frozen=True, slots=True)
class Extent:
    """How thoroughly to measure.

    Attributes:
        budget_s: a run that would end later is left out, but each shape's single frame.
        rounds: most repetitions within that time.
        every: all powers of two, and shapes turned by a quarter on their own; else three sizes, and
            a shape and the same one turned count as one.
    """

    budget_s: float
    rounds: int
    every: bool


QUICK = Extent(2.0, 10, every=False)
FULL = Extent(60.0, 20, every=True)

ShapeKey = tuple[int, int]
"""Height, width."""
Run = Callable[[Shape, int], float]
"""Runs a batch of so many frames of a shape. Returns seconds > 0.

Raises:
    MemoryError: there was none for it.
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """What calibration found.

    Attributes:
        seconds: (height, width) → batch size → seconds.
        whole: it was not told to stop.
    """

    seconds: Mapping[ShapeKey, Mapping[int, float]]
    whole: bool


def batch_sizes(most: int, *, every: bool) -> tuple[int, ...]:
    """Sizes to measure up to `most` ≥ 1, rising: all powers of two and `most`; or 1, `most` and
    about their geometric mean."""
    if every:
        return tuple(sorted({1 << p for p in range(most.bit_length()) if 1 << p < most} | {most}))
    return tuple(sorted({1, max(1, round(math.sqrt(most))), most}))


def calibrate(
    run: Run,
    shapes: Sequence[Shape],
    extent: Extent,
    *,
    clock: Clock = time.perf_counter,
    stopping: Callable[[], bool] = lambda: False,
) -> Measured:
    """Measure all shapes, small batches first. All of them have run before.

    Args:
        run: see `Run`.
        shapes: distinct, each with its largest batch.
        extent: how thoroughly.
        clock: of the budget.
        stopping: asked before each run; once it says yes nothing more is run.
    """
    asked = list(shapes) if extent.every else _upright(shapes)
    until = clock() + extent.budget_s
    best: dict[Shape, dict[int, float]] = {shape: {} for shape in asked}
    for _ in range(extent.rounds):
        ran = False
        for size, shape in _cases(asked, every=extent.every):
            if stopping():
                return Measured(_by_key(shapes, best), whole=False)
            known = best[shape]
            if known and clock() + _expected_s(known, size) > until:
                continue
            try:
                seconds = run(shape, size)
            except MemoryError:
                # The batches themselves find out what fits then: see `pipeline/cap.py`.
                continue
            known[size] = min(seconds, known.get(size, math.inf))
            ran = True
        if not ran:
            break
    return Measured(_by_key(shapes, best), whole=True)


def runs_of(model: Model, clock: Clock) -> Run:
    """Runs on a model, whose instance it has to itself meanwhile. Frames are made beforehand.

    Args:
        clock: seconds of a run; see `pipeline.backend_speed.machine_clock`.
    """

    def run(shape: Shape, n: int) -> float:
        size = (n, shape.height, shape.width, 3)
        try:
            with device_errors():
                frames = torch.full(size, PAD_VALUE, dtype=torch.uint8, device=model.device)
                _wait(model.device)
                began_at = clock()
                model.infer(frames)
                _wait(model.device)
                return max(clock() - began_at, 1e-9)
        except torch.OutOfMemoryError as error:
            shortage = str(error)
        # Out here the error's frames are gone, and with them what the run had taken.
        raise MemoryError(shortage)

    return run


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _cases(shapes: Sequence[Shape], *, every: bool) -> list[tuple[int, Shape]]:
    """Batch sizes with their shapes, small batches of all shapes first."""
    cases = [
        (size, index) for index, shape in enumerate(shapes)
        for size in batch_sizes(shape.max_batch, every=every)
    ]  # fmt: skip
    return [(size, shapes[index]) for size, index in sorted(cases)]


def _expected_s(known: Mapping[int, float], size: int) -> float:
    """As long as last time, or in proportion to the nearest smaller size."""
    below = max(n for n in known if n <= size)
    return known[below] * size / below


def _upright(shapes: Sequence[Shape]) -> list[Shape]:
    """One of each shape and its turned one: wide, with the larger of their batches."""
    most: dict[ShapeKey, int] = {}
    for shape in shapes:
        key = _lying((shape.height, shape.width))
        most[key] = max(most.get(key, 1), shape.max_batch)
    there = {(shape.height, shape.width) for shape in shapes}
    chosen = [(key if key in there else key[::-1], batch) for key, batch in most.items()]
    return [Shape(height, width, batch) for (height, width), batch in chosen]


def _lying(key: ShapeKey) -> ShapeKey:
    return min(key), max(key)


def _by_key(
    shapes: Sequence[Shape], best: Mapping[Shape, Mapping[int, float]]
) -> dict[ShapeKey, dict[int, float]]:
    """Every shape's own latencies, or those of the same one turned, up to its largest batch."""
    own = {(shape.height, shape.width): dict(found) for shape, found in best.items() if found}
    turned = {_lying(key): found for key, found in own.items()}
    found: dict[ShapeKey, dict[int, float]] = {}
    for shape in shapes:
        key = (shape.height, shape.width)
        seconds = own.get(key) or turned.get(_lying(key))
        if seconds:
            found[key] = seconds
    return found
