"""How much load this machine can take: measured with the real decoder and the real model.

One factor scales all nominal rates, so that the streams keep their proportions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import torch

from frameloom.demo_footage import Footage
from frameloom.demo_streams import StreamPlan
from pipeline.backend_files import Loading
from pipeline.backends import ModelOrder, open_model
from pipeline.bucket import Bucket, BucketTable
from pipeline.decoders import make_decoder
from pipeline.item import Coordinates, Item
from pipeline.postprocess import YoloPostprocessor
from pipeline.probe import ProbeLimits, probe
from schemas.codec import RawRecord, read_frame
from schemas.settings import BucketSettings, LimitSettings, RouteSettings

if TYPE_CHECKING:
    from pipeline.ports import Decoder, Model, Postprocessor

TARGET_BUSY = 0.6
"""How busy the run should keep what other programs leave of the machine."""
_LEAST_SHARE = 0.2
"""Of the machine that is counted on, however busy others are."""
_BATCH = 4
_ROUNDS = 8
# Kafka, batching, and the producers themselves cost next to decode and inference.
_OVERHEAD = 1.15
_OTHERS_S = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a frame of each stream costs, and what it was measured with.

    Attributes:
        cost_s: stream → seconds of the whole machine that one frame takes to decode, infer and
            post-process in a batch of up to four: processor time over all cores on a CPU, time
            on the clock on a GPU.
        others_busy: share of the machine that other programs took meanwhile, 0..1.
        labels: class id → label of the model.
        model: its name and version.
        decoder, device: as the worker will choose them.
    """

    cost_s: Mapping[str, float]
    others_busy: float
    labels: Mapping[int, str]
    model: str
    decoder: str
    device: str


def target_busy(others_busy: float) -> float:
    """The share of the machine that the run may take, 0..1, next to what others take, 0..1."""
    return TARGET_BUSY * max(1.0 - others_busy, _LEAST_SHARE)


def choose_scale(rates: Mapping[str, float], cost_s: Mapping[str, float], target: float) -> float:
    """One factor for all rates, 0 < factor ≤ 1, so that the run takes `target` of the machine;
    1 where even the nominal rates take less.

    Args:
        rates: stream → nominal frames per second.
        cost_s: stream → seconds of the whole machine per frame.
        target: share of the machine, > 0.
    """
    nominal = busy(rates, cost_s, 1.0)
    return 1.0 if nominal <= target else target / nominal


def busy(rates: Mapping[str, float], cost_s: Mapping[str, float], scale: float) -> float:
    """The share of the machine, 0..1 or above, that the scaled rates are predicted to take."""
    return _OVERHEAD * scale * sum(rate * cost_s[stream] for stream, rate in rates.items())


def measure_others() -> float:
    """The share of the machine, 0..1, that is taken now, for a second in which we do nothing.
    Niced programs do not count, where the system tells them apart: they give way."""
    taken = psutil.cpu_times_percent(interval=_OTHERS_S)
    idle = taken.idle + getattr(taken, "iowait", 0.0) + getattr(taken, "nice", 0.0)
    return min(max(1.0 - idle / 100, 0.0), 1.0)


def measure(
    plans: Sequence[StreamPlan],
    footage: Mapping[str, Footage],
    route: RouteSettings,
    buckets: Sequence[BucketSettings],
    on_stream: Callable[[], None] = lambda: None,
) -> Measured:
    """Measure each kind of stream in turn; a few seconds in all.

    Raises:
        ConfigError: the weights cannot be used.
        PoisonError: the decoder refuses the demo's own pictures.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table = BucketTable(
        [Bucket(b.name, b.max_source_pixels, b.height, b.width, b.ceiling) for b in buckets]
    )
    model = open_model(
        ModelOrder(
            path=route.model,
            backend=route.backend,
            precision=route.precision,
            buckets=table.buckets,
            loading=Loading(device=device, conf=route.conf, iou=route.iou),
        )
    ).model
    decoder = make_decoder("auto", threads=os.cpu_count() or 1, device=device)
    post = YoloPostprocessor(model.labels, conf=route.conf, iou=route.iou, max_det=route.max_det)
    others_busy = measure_others()
    costs: dict[str, float] = {}
    cost_s: dict[str, float] = {}
    try:
        for plan in plans:
            if plan.kind.name not in costs:
                items = _items(footage[plan.stream], table)
                costs[plan.kind.name] = _cost_s(items, decoder, model, post, device)
            cost_s[plan.stream] = costs[plan.kind.name]
            on_stream()
        return Measured(
            cost_s=cost_s,
            others_busy=others_busy,
            labels=dict(model.labels),
            model=f"{model.info.name} ({model.info.version}) by {model.info.backend}",
            decoder=decoder.name,
            device=device,
        )
    finally:
        decoder.close()


def _cost_s(
    items: Sequence[Item], decoder: Decoder, model: Model, post: Postprocessor, device: str
) -> float:
    """Seconds per frame: the lower quartile of a few rounds, after one that only warms up:
    waiting for a core in use elsewhere only ever adds."""
    bucket = items[0].bucket
    out = torch.empty(
        (len(items), bucket.height, bucket.width, 3), dtype=torch.uint8, device=device
    )
    geometries = [item.geometry for item in items]
    # What others run lengthens the time on the clock, hardly the processor time.
    on_cpu, cores = device == "cpu", os.cpu_count() or 1
    rounds: list[float] = []
    for _ in range(1 + _ROUNDS):
        began_at = time.process_time() / cores if on_cpu else time.perf_counter()
        for error in decoder.decode(items, out):
            if error is not None:
                raise error
        # The detections are on the host: whatever ran on a device has ended.
        post.detections(model.infer(out), geometries)
        ended_at = time.process_time() / cores if on_cpu else time.perf_counter()
        rounds.append((ended_at - began_at) / len(items))
    return sorted(rounds[1:])[_ROUNDS // 4]


def _items(footage: Footage, table: BucketTable) -> list[Item]:
    """Work orders as the worker makes them, for the first pictures of a loop."""
    limits = LimitSettings()
    items: list[Item] = []
    for i, shot in enumerate(footage.shots[:_BATCH]):
        record = RawRecord("calibration", 0, i, b"calibration", shot.jpeg, 0)
        frame = read_frame(record, limits)
        header = probe(frame, ProbeLimits(limits.max_pixels, limits.max_scans))
        bucket, geometry = table.choose(header.width, header.height)
        items.append(
            Item(
                attempt_id=i,
                coordinates=Coordinates(record.topic, 0, i),
                epoch=0,
                route="calibration",
                frame=frame,
                header=header,
                bucket=bucket,
                geometry=geometry,
                received_at=0.0,
            )
        )
    return items
