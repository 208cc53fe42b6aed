"""The GPU check's second half: three ceilings, and the engine against them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from bench.gpu_check_rig import CONF, IOU, LoadedEngine, Plan, a_lane, scene_items
from bench.gpu_check_rows import Row, at_least, at_most, skipped
from pipeline.decoders import DecoderKind
from pipeline.item import Item
from pipeline.model import load_model
from pipeline.ports import Decoder, Model

WARM_UP_SHARE = 0.3
"""Of a speed run's time, before it counts."""


def decode_ceilings(
    plan: Plan, kinds: Sequence[DecoderKind], items: Sequence[Item]
) -> tuple[dict[DecoderKind, float], list[Row]]:
    """Pictures per second from bytes in main memory to rows on the device, full batches."""
    rates: dict[DecoderKind, float] = {}
    rows: list[Row] = []
    for kind in kinds:
        loads = (0.0, 0.5, 0.9, 1.0) if kind == "dali" and plan.on_gpu else (0.9,)
        for load in loads:
            decoder = plan.decoder(kind, load)
            rate = _decode_rate(plan, decoder, items)
            decoder.close()
            name = f"{kind}, JPEG engine's share {load:g}" if len(loads) > 1 else kind
            rows.append(Row("decode ceiling", name, rate, "img/s"))
            if load == 0.9:  # the default
                rates[kind] = rate
    return rates, rows


def _decode_rate(plan: Plan, decoder: Decoder, items: Sequence[Item]) -> float:
    bucket = plan.bucket
    n = bucket.max_batch
    shape = (n, bucket.height, bucket.width, 3)
    # Two buffers in turn, as two slots would.
    outs = [torch.empty(shape, dtype=torch.uint8, device=plan.device) for _ in range(2)]
    batches = [[items[(i + k) % len(items)] for k in range(n)] for i in range(len(items))]

    def run(number: int) -> None:
        for error in decoder.decode(batches[number % len(batches)], outs[number % 2]):
            if error is not None:
                raise error

    return n * _per_second(plan, run)


def model_ceilings(plan: Plan, weights: Path) -> tuple[dict[str, float], list[Row]]:
    """Frames per second of a model fed from the device's own memory, full batches."""
    rates: dict[str, float] = {}
    rows: list[Row] = []
    section = f"model ceiling {weights.stem}"
    for half in (False, True) if plan.on_gpu else (False,):
        precision = "float16" if half else "float32"
        model = load_model(str(weights), device=str(plan.device), conf=CONF, iou=IOU, half=half)
        model.warm_up([plan.bucket])
        graphed = plan.graphed(model)
        graphed.warm_up([plan.bucket])
        for name, each in ((f"{precision}, eager", model), (f"{precision}, graph", graphed)):
            rates[name] = _model_rate(plan, each, plan.bucket.max_batch)
            rows.append(Row(section, name, rates[name], "img/s"))
        rows.append(_allocations(plan, graphed, f"{section}, {precision}"))
    return rates, rows


def _model_rate(plan: Plan, model: Model, n: int) -> float:
    shape = (n, plan.bucket.height, plan.bucket.width, 3)
    frames = torch.full(shape, 114, dtype=torch.uint8, device=plan.device)

    def run(_: int) -> None:
        model.infer(frames)

    return n * _per_second(plan, run)


def _allocations(plan: Plan, model: Model, section: str) -> Row:
    name = "blocks taken from torch's cache in 20 runs of a graph"
    if not plan.on_gpu:
        return skipped(section, name, "needs a GPU")
    shape = (plan.bucket.max_batch, plan.bucket.height, plan.bucket.width, 3)
    frames = torch.full(shape, 114, dtype=torch.uint8, device=plan.device)
    before = plan.allocations()["blocks"]
    for _ in range(20):
        model.infer(frames)
    return at_most(section, name, plan.allocations()["blocks"] - before, 0)


def _per_second(plan: Plan, run: Callable[[int], None]) -> float:
    """Runs per second: as many as fit the time, after some that do not count. The device is waited
    for at both ends, and every sixteenth run so that its queue stays short."""
    runs = 0
    for counted, seconds in ((False, plan.seconds * WARM_UP_SHARE), (True, plan.seconds)):
        plan.synchronize()
        began, runs = time.perf_counter(), 0
        while time.perf_counter() - began < seconds or not runs:
            run(runs)
            runs += 1
            if runs % 16 == 0:
                plan.synchronize()
        plan.synchronize()
        if counted:
            return runs / (time.perf_counter() - began)
    raise AssertionError("unreachable: the second round returns")


def check_engine(
    plan: Plan,
    weights: Path,
    kind: DecoderKind,
    items: Sequence[Item],
    ceilings: tuple[float, float],
) -> Iterator[Row]:
    """The worker's engine, fed with encoded bytes from main memory.

    Args:
        ceilings: of the decoder and of the model, pictures per second.
    """
    half = plan.on_gpu
    model = load_model(str(weights), device=str(plan.device), conf=CONF, iou=IOU, half=half)
    graphed = plan.graphed(model)
    graphed.warm_up([plan.bucket])
    decoder = plan.decoder(kind)
    engine = LoadedEngine(plan, a_lane(graphed, decoder, [plan.bucket]))
    load = engine.run(items, plan.seconds, warm_up_s=plan.seconds * WARM_UP_SHARE)
    decode, infer = ceilings
    section = f"engine {weights.stem}, {kind}"
    lowest, bound = min(decode, infer), "decoder" if decode < infer else "model"
    yield Row(section, "frames answered", load.rate, "img/s")
    yield at_most(section, "frames without detections", load.errors, 0)
    share = load.rate / lowest
    if not plan.on_gpu:
        yield Row(section, f"share of the lower ceiling ({bound})", share)
        yield skipped(section, "overlap, busy, fill and allocation", "need a GPU")
        return
    yield at_least(section, f"share of the lower ceiling ({bound})", share, 0.95)
    yield at_least(section, "time in which the busiest stage is at work", load.busiest, 0.90)
    overlap = (load.decode_s + load.infer_s + load.post_s) / load.seconds
    yield Row(section, "stages at work at once, on average", overlap)
    busy = load.busy
    fill = load.fill(plan.bucket.max_batch)
    if bound == "model":
        yield at_least(section, "time in which the model runs", busy, 0.90)
    else:
        yield Row(section, "time in which the model runs", busy)
    yield at_least(section, "fill of batches", fill, 0.98)
    segments, pinned = load.taken
    yield at_most(section, "device memory taken from the driver meanwhile", segments, 0, "calls")
    yield at_most(section, "pinned memory taken from the driver meanwhile", pinned, 0, "calls")


def speed(plan: Plan, kinds: Sequence[DecoderKind], models: Sequence[Path]) -> Iterator[Row]:
    """Every model behind every decoder."""
    items = scene_items(plan)
    decoders, rows = decode_ceilings(plan, kinds, items)
    yield from rows
    for weights in models:
        ceilings, rows = model_ceilings(plan, weights)
        yield from rows
        best = ceilings["float16, graph" if plan.on_gpu else "float32, graph"]
        for kind in kinds:
            yield from check_engine(plan, weights, kind, items, (decoders[kind], best))
