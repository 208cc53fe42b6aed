"""The GPU check's first half: is what comes out right?"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from msgspec import structs

from bench.frame_item import frame_item
from bench.gpu_check_rig import CONF, IOU, MAX_DET, Direct, Driven, Plan, a_lane
from bench.gpu_check_rows import Row, at_least, at_most, holds, skipped
from bench.parity import Reference
from bench.parity_pictures import samples
from pipeline.bucket import Bucket
from pipeline.cuda_graphs import GraphableModel
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.decoders import DecoderKind
from pipeline.item import Item
from pipeline.model import YoloModel, load_model
from pipeline.ports import Decoder, Model
from pipeline.postprocess import YoloPostprocessor
from schemas.result import Detection

BUCKETS = (
    Bucket("480p", 420_000, 256, 448, 8),
    Bucket("480p-portrait", 420_000, 448, 256, 8),
    Bucket("1080p", 2_100_000, 384, 640, 8),
    Bucket("square", 50_000_000, 640, 640, 8),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How far boxes may be from the reference: least overlap, largest difference of scores."""

    iou: float
    score: float


FULL = Limits(0.99, 0.01)
HALF = Limits(0.95, 0.03)
OTHER_ROWS = Limits(0.90, 0.10)
"""Where another decoder wrote the rows: they are a grey level or two away."""


def decoder_kinds(plan: Plan) -> list[DecoderKind]:
    """Those that can run here."""
    kinds: list[DecoderKind] = ["opencv"]
    if importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali"):
        kinds.append("dali")
    if plan.on_gpu:
        kinds.append("torchvision")
    return kinds


# --- decoders ------------------------------------------------------------------------------------


def check_decoder(plan: Plan, kind: DecoderKind) -> Iterator[Row]:
    """Every sample into every bucket, and broken ones among them."""
    section = f"decode {kind}"
    decoder, exact = plan.decoder(kind), OpenCvDecoder()
    worst, spoilt, missed = 0.0, 0, 0
    for bucket in BUCKETS:
        items = [frame_item(sample.data, sample.encoding, bucket) for sample in samples()]
        broken = {3: _cut(items[0]), 6: _another_size(items[1])}
        for number, item in broken.items():
            items.insert(number, item)
        rows, errors = _rows(decoder, items, plan.device)
        expected, _ = _rows(exact, items, torch.device("cpu"))
        for number, error in enumerate(errors):
            if number in broken:
                missed += error is None
            elif error is not None:
                spoilt += 1
            else:
                difference = np.abs(rows[number].astype(np.int16) - expected[number])
                worst = max(worst, float(difference.mean()))
    decoder.close()
    limit = 0.0 if kind == "opencv" else 2.0
    yield at_most(section, "worst picture's mean difference from OpenCV", worst, limit, "levels")
    yield at_most(section, "good pictures refused beside broken ones", spoilt, 0)
    yield at_most(section, "broken pictures taken", missed, 0)


def _rows(
    decoder: Decoder, items: Sequence[Item], device: torch.device
) -> tuple[np.ndarray, list[object]]:
    bucket = items[0].bucket
    shape = (len(items), bucket.height, bucket.width, 3)
    out = torch.zeros(shape, dtype=torch.uint8, device=device)
    errors: list[object] = []
    for start in range(0, len(items), bucket.max_batch):
        stop = start + bucket.max_batch
        errors += decoder.decode(items[start:stop], out[start:stop])
    return out.cpu().numpy(), errors


def _cut(item: Item) -> Item:
    data = bytes(item.frame.data)[: len(item.frame.data) // 2]
    frame = type(item.frame)(
        stream_id="cut",
        seq=0,
        captured_at_us=0,
        encoding=item.frame.encoding,
        data=memoryview(data),
    )
    return structs.replace(item, frame=frame)


def _another_size(item: Item) -> Item:
    """A header that lies about the picture's size: found only once it is decoded."""
    header = structs.replace(item.header, coded_width=item.header.coded_width - 16)
    return structs.replace(item, header=header)


# --- graphs and suppression ----------------------------------------------------------------------


def check_graphs(plan: Plan, model: YoloModel) -> Iterator[Row]:
    """Graphs against the same model run eagerly, shapes and sizes taking turns: a graph that lost
    its anchors, or rows of another batch, would show."""
    graphed = plan.graphed(model)
    buckets = BUCKETS[:3]
    graphed.warm_up(buckets)
    wanted = sum(len({1, 2, 4, 8}) for _ in buckets)
    made = sum(len(sizes) for sizes in graphed.sizes.values())
    yield at_least("graphs", "recorded", made, wanted)
    boxes = scores = 0.0
    compared = 0
    frames = {bucket: _pictures(plan, bucket) for bucket in buckets}
    for turn, n in enumerate((8, 1, 3, 5, 8, 2, 7)):
        for bucket in buckets:
            chosen = frames[bucket].roll(turn, 0)[:n].contiguous()
            found = graphed.infer(chosen).clone()
            expected = model.infer(chosen)
            candidates = expected[:, 4:].amax(1, keepdim=True) > CONF
            compared += int(candidates.sum())
            boxes = max(boxes, float(((found - expected)[:, :4].abs() * candidates).max()))
            scores = max(scores, float((found - expected)[:, 4:].abs().max()))
    yield at_least("graphs", "candidates compared with the eager run's", compared, 1)
    yield at_most("graphs", "boxes apart from the eager run's", boxes, 1.0, "px")
    yield at_most("graphs", "scores apart from the eager run's", scores, 0.01)
    yield _capture_that_fails(plan, model)


def _pictures(plan: Plan, bucket: Bucket) -> torch.Tensor:
    """The samples as one batch of the bucket, on the device."""
    items = [frame_item(sample.data, sample.encoding, bucket) for sample in samples()]
    rows, _ = _rows(OpenCvDecoder(), items, torch.device("cpu"))
    return torch.from_numpy(rows).to(plan.device)


class _Unrecordable:
    """A model whose run asks the device for a value, which no graph can hold."""

    def __init__(self, model: GraphableModel) -> None:
        self._model = model
        self.info, self.labels = model.info, model.labels
        self.stride, self.device = model.stride, model.device
        self.warm_up, self.infer, self.kept = model.warm_up, model.infer, model.kept

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        frames.sum().item()
        return self._model.forward(frames)


def _capture_that_fails(plan: Plan, model: YoloModel) -> Row:
    name = "a capture that fails leaves the model and later captures usable"
    if not plan.on_gpu:
        return skipped("graphs", name, "needs a GPU")
    bucket = replace(BUCKETS[0], max_batch=2)
    broken = plan.graphed(_Unrecordable(model))
    broken.warm_up([bucket])
    shape = (2, bucket.height, bucket.width, 3)
    frames = torch.full(shape, 114, dtype=torch.uint8, device=plan.device)
    whole = bool(broken.infer(frames).isfinite().all())
    again = plan.graphed(model)
    again.warm_up([bucket])
    passed = whole and not broken.sizes and bool(again.sizes)
    return holds("graphs", name, passed=passed, why=f"{broken.sizes} {again.sizes}")


def check_suppression(plan: Plan, model: Model) -> Iterator[Row]:
    """The same crowded predictions, on the device and on the processor."""
    generator = torch.Generator().manual_seed(7)
    classes = len(model.labels)
    raw = torch.rand((8, 4 + classes, 1_000), generator=generator)
    raw[:, :2] *= 640
    raw[:, 2:4] = raw[:, 2:4] * 80 + 4
    raw[:, 4:] **= 8
    post = YoloPostprocessor(model.labels, conf=CONF, iou=IOU, max_det=MAX_DET)
    here, there = post.keep(raw), post.keep(raw.to(plan.device)).cpu()
    same = here.shape == there.shape and bool(torch.equal(here, there))
    yield holds("suppression", f"keeps the processor's {len(here)} boxes", passed=same)


# --- answers -------------------------------------------------------------------------------------


def check_device(plan: Plan, model: YoloModel) -> Iterator[Row]:
    """The whole device with exact rows, against one frame at a time without it."""
    graphed = plan.graphed(model)
    graphed.warm_up(BUCKETS)
    driven = Driven(plan, a_lane(graphed, OpenCvDecoder(threads=plan.decode_threads), BUCKETS))
    direct = Direct(model)
    batches: list[list[Item]] = []
    for number, bucket in enumerate(BUCKETS * 3):
        items = [frame_item(sample.data, sample.encoding, bucket) for sample in samples()]
        size = 1 + number * 3 % bucket.max_batch
        batches.append([*items[number % 4 :][: size - 1], items[-1]])
        if size > 2:
            batches[-1][1] = _cut(items[0])
    comparison = Comparison(FULL)
    wrong = 0
    for items, outcomes in zip(batches, driven.run(batches), strict=True):
        for item, outcome in zip(items, outcomes, strict=True):
            broken = item.frame.stream_id == "cut"
            wrong += outcome.item is not item or (outcome.error is not None) != broken
            if not broken and outcome.error is None:
                comparison.add(direct.answers(item), outcome.detections)
    driven.close()
    yield at_most("device", "frames with another's answer, or none", wrong, 0)
    yield from comparison.rows("device", "one frame at a time")


def check_parity(plan: Plan, weights: Path, kind: DecoderKind, *, half: bool) -> Iterator[Row]:
    """The whole device against Ultralytics' own `predict`, picture by picture, in float32."""
    model = load_model(str(weights), device=str(plan.device), conf=CONF, iou=IOU, half=half)
    graphed = plan.graphed(model)
    graphed.warm_up(BUCKETS)
    driven = Driven(plan, a_lane(graphed, plan.decoder(kind), BUCKETS))
    reference = Reference(weights, str(plan.device))
    limits = OTHER_ROWS if kind != "opencv" else HALF if half else FULL
    comparison = Comparison(limits)
    for bucket in BUCKETS:
        pictures = samples()
        items = [frame_item(sample.data, sample.encoding, bucket) for sample in pictures]
        pieces = [
            items[at : at + bucket.max_batch] for at in range(0, len(items), bucket.max_batch)
        ]
        outcomes = [outcome for done in driven.run(pieces) for outcome in done]
        for sample, outcome in zip(pictures, outcomes, strict=True):
            comparison.add(reference.answer(sample, bucket), outcome.detections)
    driven.close()
    precision = "float16" if half else "float32"
    yield from comparison.rows(f"parity {weights.stem}, {precision}, {kind}", "Ultralytics")


class Comparison:
    """Boxes against reference boxes. One that only one side has counts as missing, unless its score
    is so near the threshold that the allowed difference explains it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.boxes = 0
        self.missing = 0
        self.iou = 1.0
        self.score = 0.0

    def add(self, expected: Sequence[Detection], found: Sequence[Detection]) -> None:
        free = list(found)
        for box in expected:
            mine = max(free, key=lambda other: _overlap(box, other), default=None)
            if mine is None or _overlap(box, mine) < 0.5:
                self.missing += not self._close_call(box, len(expected))
                continue
            free.remove(mine)
            self.boxes += 1
            self.iou = min(self.iou, _overlap(box, mine))
            self.score = max(self.score, abs(box.score - mine.score))
        self.missing += sum(not self._close_call(box, len(found)) for box in free)

    def rows(self, section: str, other: str) -> Iterator[Row]:
        yield at_least(section, f"boxes compared with {other}", self.boxes, 1)
        yield at_most(section, "boxes that only one side has", self.missing, 0)
        yield at_least(section, "least overlap", self.iou, self._limits.iou)
        yield at_most(section, "largest difference of scores", self.score, self._limits.score)

    def _close_call(self, box: Detection, boxes: int) -> bool:
        return box.score <= CONF + self._limits.score or boxes >= MAX_DET


def _overlap(a: Detection, b: Detection) -> float:
    """Intersection over union; 0 for another class."""
    if a.class_id != b.class_id:
        return 0.0
    width = min(a.box[2], b.box[2]) - max(a.box[0], b.box[0])
    height = min(a.box[3], b.box[3]) - max(a.box[1], b.box[1])
    both = max(width, 0.0) * max(height, 0.0)
    areas = [(d.box[2] - d.box[0]) * (d.box[3] - d.box[1]) for d in (a, b)]
    union = sum(areas) - both
    return both / union if union > 0 else float(a.box == b.box)
