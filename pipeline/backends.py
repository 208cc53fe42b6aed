"""A route's model, by whatever runs it: `open_model`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.backend_choice import Order, choose, compare_live, exported_file
from pipeline.backend_files import Kind, Loading, judge, kind_of, load_exported
from pipeline.backend_model import ExportedModel, bucket_shapes, check_strides
from pipeline.bucket import Bucket
from pipeline.exported import digest_of
from pipeline.model_cache import CacheError, Choice, Figure, ModelCache, default_folder
from pipeline.ports import Model
from pipeline.postprocess import check_classes
from schemas.errors import ConfigError
from schemas.settings import Backend, Precision


@dataclass(frozen=True, slots=True)
class ModelOrder:
    """What a route asks for; see `RouteSettings` and `DeviceSettings`.

    Attributes:
        path: weights or an exported file.
        backend, precision: of the route.
        buckets: of the route.
        loading: device, thresholds, threads.
        cache: folder for exported files and choices; None for the user's own.
        classes: ids that the route reports; None for all.
    """

    path: str
    backend: Backend
    precision: Precision
    buckets: tuple[Bucket, ...]
    loading: Loading
    cache: Path | None = None
    classes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A model, not warmed up yet nor run on a CPU, and how it was come by.

    Attributes:
        model: ready for its route's buckets.
        choice: which backend, with what was measured.
        warnings: sentences for the log.
    """

    model: Model
    choice: Choice
    warnings: tuple[str, ...] = field(default_factory=tuple[str, ...])


def open_model(order: ModelOrder) -> Opened:
    """Load what the route names, by the backend that it asks for, and hold it to torch's boxes.

    Raises:
        ConfigError: the model, its library, the device or the combination cannot be had; or the
            backend's boxes are off, and no other may take its place.
    """
    kind = kind_of(order.path)
    if kind is not Kind.TORCH:
        return _open_file(order, kind)
    if order.backend is Backend.TORCH:
        return _open_torch(order)
    weights = _weights(order)
    if order.backend is Backend.AUTO:
        return _open_fastest(order, weights)
    return _open_export(order, weights)


def _open_file(order: ModelOrder, kind: Kind) -> Opened:
    if order.backend not in {Backend.AUTO, kind.value}:
        raise ConfigError(
            f"routes.backend = {order.backend.value}: model {order.path} is a file for {kind.value}"
        )
    model = load_exported(Path(order.path), order.loading)
    asked = order.precision
    if asked is not Precision.AUTO and model.about.half != (asked is Precision.FP16):
        found = "fp16" if model.about.half else "fp32"
        raise ConfigError(f"routes.precision = {asked.value}: model {order.path} is {found}")
    return _gated(order, model, Path(order.path))


def _open_export(order: ModelOrder, weights: Order) -> Opened:
    file = exported_file(weights, Kind(order.backend.value), _cache(order))
    return _gated(order, load_exported(file, order.loading), file)


def _gated(order: ModelOrder, model: ExportedModel, file: Path) -> Opened:
    """An exported model whose boxes are those of torch."""
    check_classes(order.classes, model.labels)
    check_strides(order.buckets, model.stride)
    model.check_shapes(order.buckets)
    figure = judge(model, bucket_shapes(order.buckets))
    if figure.refused:
        raise _off(order, figure)
    warnings: tuple[str, ...] = ()
    if figure.iou is None:
        warnings = (_incomparable(order.path),)
    elif model.device.type == "cpu":
        # What the comparison's runs took, a library keeps, and the memory plan would not see.
        model = load_exported(file, order.loading)
    return Opened(model, Choice(backend=figure.backend, figures=(figure,)), warnings)


def _open_torch(order: ModelOrder) -> Opened:
    from pipeline.model import load_model  # noqa: PLC0415 - imports Ultralytics

    asked = order.loading
    half = order.precision is Precision.FP16
    model = load_model(
        order.path, device=asked.device, conf=asked.conf, iou=asked.iou, threads=asked.threads,
        half=half,
    )  # fmt: skip
    check_strides(order.buckets, model.stride)
    check_classes(order.classes, model.labels)
    if not half:
        return Opened(model, Choice(backend=model.info.backend))
    full = load_model(order.path, device=asked.device, conf=asked.conf, iou=asked.iou)
    figure = compare_live(model, full, bucket_shapes(order.buckets))
    if figure.refused:
        raise _off(order, figure)
    return Opened(model, Choice(backend=figure.backend, figures=(figure,)))


def _open_fastest(order: ModelOrder, weights: Order) -> Opened:
    try:
        model, choice = choose(weights, _cache(order))
    except CacheError as error:  # a read-only home is no reason not to start
        opened = _open_torch(order)
        return Opened(opened.model, opened.choice, (f"backend auto stays with torch: {error}",))
    check_strides(order.buckets, model.stride)
    check_classes(order.classes, model.labels)
    warnings = tuple(
        f"backend {figure.backend} is left out: {figure.refused}"
        for figure in choice.figures
        if figure.refused
    )
    return Opened(model, choice, warnings)


def _weights(order: ModelOrder) -> Order:
    """The weights, fetched first where they are a published name and missing."""
    file = Path(order.path)
    if not file.is_file():
        from pipeline.checkpoint import read_checkpoint  # noqa: PLC0415 - imports Ultralytics

        read_checkpoint(order.path)
    return Order(
        order.path, digest_of(file), order.buckets, order.precision, order.loading, order.classes
    )


def _incomparable(path: str) -> str:
    return (
        f"model {path} carries nothing to compare its boxes with, or was made with other pictures; "
        "export it with `frameloom export` to have them compared with torch's"
    )


def _cache(order: ModelOrder) -> ModelCache:
    return ModelCache(order.cache or default_folder())


def _off(order: ModelOrder, figure: Figure) -> ConfigError:
    return ConfigError(
        f"routes.backend = {order.backend.value}: the boxes of {figure.backend} for model "
        f"{order.path} are not those of torch in float32: {figure.refused}"
    )
