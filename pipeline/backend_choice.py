"""`backend: auto` with weights: export, compare, measure, choose the fastest, remember it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pipeline.backend_files import Kind, Loading, figure_of, judge, load_exported
from pipeline.backend_model import ExportedModel, bucket_shapes
from pipeline.backend_speed import machine_clock, measure, overall, run_all
from pipeline.bucket import Bucket
from pipeline.circumstances import card, processor
from pipeline.export_format import FOLDER_END, Format
from pipeline.exported import Shape, library_versions
from pipeline.model_cache import Choice, Figure, ModelCache, key_of
from pipeline.parity import answers_of, compare, limits_of, reference_shapes
from pipeline.parity_pictures import digest as pictures_digest
from pipeline.ports import Clock, Model
from pipeline.postprocess import check_classes
from pipeline.torch_device import find_device
from schemas.errors import ConfigError
from schemas.settings import Precision

RECIPE = 2
"""Raise it when exports or measurements are made differently: what is cached is made anew."""
TORCH, TORCH_HALF = "torch", "torch-fp16"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What a route asks for.

    Attributes:
        weights: a `.pt` file that is there.
        digest: its SHA-256.
        buckets: of the route.
        precision: of the route.
        loading: device, thresholds, threads.
        classes: that the route reports; None for all.
    """

    weights: str
    digest: str
    buckets: tuple[Bucket, ...]
    precision: Precision
    loading: Loading
    classes: tuple[int, ...] | None = None

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The buckets' distinct shapes."""
        return bucket_shapes(self.buckets)


def choose(order: Order, cache: ModelCache, clock: Clock | None = None) -> tuple[Model, Choice]:
    """The fastest backend whose boxes are torch's own, and what was seen of all.

    The second start with the same weights, buckets, machine and versions only loads what the first
    has chosen.

    Raises:
        ConfigError: the weights cannot be used, even by torch.
    """
    device = str(find_device(order.loading.device))
    key = key_of(_circumstances(order, device))
    cache.open()
    with cache.making(f"choice-{key}"):
        chosen = _chosen_before(order, cache, key)
        if chosen is not None:
            return chosen
        choice = _compete(
            order, cache, device, clock or machine_clock(device, order.loading.threads)
        )
        cache.keep(key, choice)
        # Loaded anew, as a later start does: what its runs took, the memory plan has yet to see.
        return _load(order, cache, choice.backend), choice


def exported_file(order: Order, kind: Kind, cache: ModelCache) -> Path:
    """The cached export for the order's buckets, made first where it is missing.

    Raises:
        ConfigError: it cannot be exported.
    """
    half = order.precision is Precision.FP16
    key = key_of(
        {"recipe": RECIPE, "digest": order.digest, "kind": kind, "half": half,
         "shapes": order.shapes, "versions": library_versions(), "pictures": pictures_digest(),
         "card": card(order.loading.device) if kind is Kind.TENSORRT else ""}
    )  # fmt: skip
    ends = {Kind.ONNX: ".onnx", Kind.OPENVINO: FOLDER_END, Kind.TENSORRT: ".engine"}
    file = cache.folder / f"{Path(order.weights).stem}-{key}{ends[kind]}"
    cache.open()
    with cache.making(file.name):
        if not file.exists():
            _export(order, kind, file)
    return file


def _export(order: Order, kind: Kind, file: Path) -> None:
    from pipeline.checkpoint import read_checkpoint  # noqa: PLC0415 - imports Ultralytics
    from pipeline.export import ExportOrder, export_model  # noqa: PLC0415 - imports Ultralytics

    if order.classes is not None:
        check_classes(order.classes, read_checkpoint(order.weights).labels)
    export = ExportOrder(
        weights=order.weights,
        format=Format.ENGINE if kind is Kind.TENSORRT else Format(kind.value),
        shapes=order.shapes,
        half=order.precision is Precision.FP16,
        device="cuda" if order.loading.device == "auto" else order.loading.device,
    )
    export_model(export, file)


def _circumstances(order: Order, device: str) -> Mapping[str, object]:
    """Whatever decides which backend is fastest, and whether it may serve."""
    return {
        "recipe": RECIPE, "digest": order.digest, "shapes": order.shapes, "device": device,
        "card": card(device), "processor": processor(), "threads": order.loading.threads,
        "cores": len(os.sched_getaffinity(0)), "precision": order.precision,
        "versions": library_versions(), "pictures": pictures_digest(),
    }  # fmt: skip


def _chosen_before(order: Order, cache: ModelCache, key: str) -> tuple[Model, Choice] | None:
    choice = cache.choice(key)
    if choice is None:
        return None
    try:
        model = _load(order, cache, choice.backend)
    except (ConfigError, ValueError) as error:
        # A library that went, a file cut short: choose again, without what fails.
        log.warning("the backend chosen before cannot be loaded: %s", error)
        cache.forget(key)
        return None
    return model, choice


def _load(order: Order, cache: ModelCache, backend: str) -> Model:
    if backend in {TORCH, TORCH_HALF}:
        return _load_torch(order, half=backend == TORCH_HALF)
    kind = Kind(backend.removesuffix("-fp16"))
    return load_exported(exported_file(order, kind, cache), order.loading)


def _compete(order: Order, cache: ModelCache, device: str, clock: Clock) -> Choice:
    """Measure whoever passes parity, side by side."""
    full = _load_torch(order, half=False)
    check_classes(order.classes, full.labels)
    rivals = _halves(order, full) if device != "cpu" else _exports(order, cache)
    running: dict[str, Model] = {} if _wants_half(order) else {TORCH: full}
    figures = {TORCH: Figure(backend=TORCH)}
    for name, (model, figure) in rivals.items():
        figures[name] = figure
        if model is not None and not figure.refused:
            running[name] = model
    for name, reason in _failures(running, order.buckets).items():
        figures[name] = msgspec.structs.replace(figures[name], refused=reason)
        del running[name]
    if not running:  # half precision is asked for and is off: the worker serves, in full
        running = {TORCH: full}
    speeds = measure(running, order.buckets, clock)
    for name, speed in speeds.items():
        figures[name] = msgspec.structs.replace(figures[name], img_per_s=speed)
    best = max(running, key=lambda name: overall(speeds[name]))
    return Choice(backend=best, figures=tuple(figures.values()))


def _failures(models: Mapping[str, Model], buckets: Sequence[Bucket]) -> dict[str, str]:
    """Run every case once, which pays for what first runs cost. Backend → why it cannot."""
    failed: dict[str, str] = {}
    for name, model in models.items():
        try:
            run_all(model, buckets)
        except (RuntimeError, ValueError) as error:
            if name == TORCH:
                raise
            failed[name] = f"it fails: {error}"
    return failed


def _exports(order: Order, cache: ModelCache) -> dict[str, tuple[ExportedModel | None, Figure]]:
    """The exported files that this machine can run on its processor, compared."""
    found: dict[str, tuple[ExportedModel | None, Figure]] = {}
    for kind in (Kind.ONNX, Kind.OPENVINO):
        try:
            model = load_exported(exported_file(order, kind, cache), order.loading)
            found[model.info.backend] = (model, judge(model, order.shapes))
        except (ConfigError, RuntimeError, ValueError) as error:
            found[kind.value] = (None, Figure(backend=kind.value, refused=str(error)))
    return found


def _halves(order: Order, full: Model) -> dict[str, tuple[Model | None, Figure]]:
    """Torch in half precision on CUDA, compared."""
    if order.precision is Precision.FP32:
        return {}
    half = _load_torch(order, half=True)
    return {TORCH_HALF: (half, compare_live(half, full, order.shapes))}


def compare_live(model: Model, full: Model, shapes: Sequence[Shape]) -> Figure:
    """A model against torch in float32, both loaded."""
    at = reference_shapes(shapes)
    batch = min(shape.max_batch for shape in at)
    parity = compare(model, answers_of(full, at), limits_of(model.info.backend), batch)
    return figure_of(model, parity)


def _wants_half(order: Order) -> bool:
    return order.precision is Precision.FP16


def _load_torch(order: Order, *, half: bool) -> Model:
    from pipeline.model import load_model  # noqa: PLC0415 - imports Ultralytics

    asked = order.loading
    return load_model(
        order.weights,
        device=asked.device,
        conf=asked.conf,
        iou=asked.iou,
        threads=asked.threads,
        half=half,
    )
