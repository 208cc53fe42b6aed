"""What the routes run on: models loaded and warmed up, their memory planned, their surfaces had.

What imports torch is imported where a model is loaded: that takes seconds, and a wrong setting or
a missing topic is to be said before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.bucket import Bucket
from pipeline.ports import Lane, Model
from schemas.settings import RouteSettings, Settings
from workers.loading import go_on
from workers.logs import Log, get_log

if TYPE_CHECKING:
    from pipeline.backends import ModelOrder
    from pipeline.model_cache import Choice
    from pipeline.surface_cache import Calibrated, Calibration
    from workers.planning import Planning


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the routes run on.

    Attributes:
        lanes: by route name.
        torch_device: where their tensors live.
        surface: (route, bucket) → batch size → seconds of the model, as measured.
        forget: route → drops its kept surface.
    """

    lanes: Mapping[str, Lane]
    torch_device: str
    surface: Mapping[tuple[str, str], Mapping[int, float]] = field(
        default_factory=dict[tuple[str, str], Mapping[int, float]]
    )
    forget: Mapping[str, Callable[[], None]] = field(default_factory=dict[str, Callable[[], None]])


def load_lanes(settings: Settings, stopping: Callable[[], bool] = lambda: False) -> Loaded:
    """Load every route's model, warm it up for its buckets, and have its surface.

    Args:
        stopping: once it says yes, nothing more is measured, and no further step begun.

    Raises:
        ConfigError: a model, a class or a device that cannot be had, or memory for its batches.
        LoadingStopped: `stopping` said yes.
    """
    log = get_log("frameloom.worker")
    device = settings.device.name
    lanes: dict[str, Lane] = {}
    surface: dict[tuple[str, str], Mapping[int, float]] = {}
    forget: dict[str, Callable[[], None]] = {}
    from pipeline.devices import with_preferred
    from workers.planning import Planning

    planning = Planning(settings, log, stopping)
    for route in settings.routes:
        model, buckets = load_route(settings, route, device, planning)
        # `auto` is settled by the first model; the others follow it.
        device = str(model.device)
        # Decoders may be compared there, which takes seconds.
        go_on(stopping)
        lanes[route.name] = lane = _lane(settings, route, model, buckets)
        go_on(stopping)
        found = measure_surface(settings, lane, stopping, log)
        # What was cut short is no surface.
        go_on(stopping)
        forget[route.name] = found.forget
        by_name = {bucket.name: bucket for bucket in lane.buckets}
        for bucket, seconds in found.of(lane.buckets).items():
            surface[route.name, bucket] = seconds
            with_preferred(model, by_name[bucket], seconds)
        log.info(
            "route_ready", route=route.name, input=route.input, model=model.info.name,
            version=model.info.version, backend=model.info.backend, device=device,
            decoder=lane.decoder.name,
        )  # fmt: skip
    return Loaded(lanes, device, surface, forget)


def load_route(
    settings: Settings, route: RouteSettings, device: str, planning: Planning
) -> tuple[Model, tuple[Bucket, ...]]:
    """A route's model, warmed up for its buckets, and these with batches as planned.

    Raises:
        ConfigError: it cannot be had, or has no memory for its batches.
        LoadingStopped: the worker is to stop.
    """
    from pipeline.backends import open_model
    from pipeline.devices import with_graphs

    log = planning.log
    go_on(planning.stopping)
    opened = open_model(model_order(settings, route, device))
    for warning in opened.warnings:
        log.warning("backend_warning", route=route.name, detail=warning)
    log_choice(log, route.name, opened.choice)
    go_on(planning.stopping)
    buckets = planning.buckets(route, opened.model)
    go_on(planning.stopping)
    model = with_graphs(opened.model, wanted=settings.device.cuda_graphs)
    planning.warm_up(route, model, buckets)
    return model, buckets


def log_choice(log: Log, route: str, choice: Choice) -> None:
    """A line for each backend that was measured or compared, and one for the one that serves."""
    for figure in choice.figures:
        found: dict[str, object] = {}
        if figure.img_per_s:
            found["img_per_s"] = dict(figure.img_per_s)
        if figure.iou is not None and figure.score is not None:
            found |= {"iou": round(figure.iou, 6), "score": round(figure.score, 6)}
        if found:
            log.info("backend_measured", route=route, backend=figure.backend, **found)
    log.info("backend_chosen", route=route, backend=choice.backend, cached=choice.cached)


def measure_surface(
    settings: Settings, lane: Lane, stopping: Callable[[], bool], log: Log
) -> Calibrated:
    """The surface of the lane's model, which is warmed up: read where an earlier start measured it,
    else measured."""
    from pipeline.latency import Table
    from pipeline.model_cache import CacheError
    from pipeline.surface_cache import Calibrated

    asked = settings.device.calibrate
    if asked == "off":
        return Calibrated({}, cached=False)
    calibration = calibration_of(settings, stopping)
    try:
        found = calibration.surface(lane.model, lane.buckets)
    except CacheError as error:  # a read-only home is no reason not to start
        log.warning("surface_not_kept", detail=str(error))
        found = replace(calibration, cache=None).surface(lane.model, lane.buckets)
    by_bucket = found.of(lane.buckets)
    log.info(
        "surface", calibrate=asked, cached=found.cached,
        milliseconds={
            bucket: {n: round(s * 1e3, 2) for n, s in sorted(seconds.items())}
            for bucket, seconds in by_bucket.items()
        },
        preferred={bucket: Table(seconds).plateau() for bucket, seconds in by_bucket.items()},
        worthwhile={bucket: Table(seconds).worthwhile() for bucket, seconds in by_bucket.items()},
    )  # fmt: skip
    return found


def calibration_of(settings: Settings, stopping: Callable[[], bool] = lambda: False) -> Calibration:
    """How the settings want surfaces to be come by."""
    from pipeline.model_cache import ModelCache, default_folder
    from pipeline.surface_cache import Calibration

    device = settings.device
    folder = default_folder() if device.model_cache_dir is None else Path(device.model_cache_dir)
    return Calibration(
        ModelCache(folder),
        full=device.calibrate == "full",
        threads=device.model_threads,
        graphs=device.cuda_graphs,
        stopping=stopping,
    )


def model_order(settings: Settings, route: RouteSettings, device: str) -> ModelOrder:
    """What a route asks of its model."""
    from pipeline.backend_files import Loading
    from pipeline.backends import ModelOrder
    from workers.planning import provisional

    cache = settings.device.model_cache_dir
    return ModelOrder(
        path=route.model,
        backend=route.backend,
        precision=route.precision,
        buckets=provisional(route),
        loading=Loading(
            device=device, conf=route.conf, iou=route.iou, threads=settings.device.model_threads
        ),
        cache=None if cache is None else Path(cache),
        classes=None if route.classes is None else tuple(route.classes),
    )


def _lane(
    settings: Settings, route: RouteSettings, model: Model, buckets: tuple[Bucket, ...]
) -> Lane:
    from pipeline.decoders import fills_gpu, make_decoder
    from pipeline.postprocess import YoloPostprocessor

    threads = settings.device.decode_threads or len(os.sched_getaffinity(0))
    decoder = make_decoder(
        settings.device.decoder,
        threads=threads,
        device=str(model.device),
        hw_decoder_load=settings.device.hw_decoder_load,
    )
    return Lane(
        decoder=decoder,
        model=model,
        postprocessor=YoloPostprocessor(
            model.labels,
            conf=route.conf,
            iou=route.iou,
            max_det=route.max_det,
            classes=route.classes,
        ),
        decodes_on_gpu=fills_gpu(decoder),
        buckets=buckets,
    )
