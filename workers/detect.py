"""The composition root of the detection worker: settings → machinery → a running process.

What imports torch is imported where a model is loaded: that takes seconds, and a wrong setting or
a missing topic is to be said before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import disable_created_metrics

from pipeline.batcher import Batcher
from pipeline.engine import Engine
from pipeline.ports import Lane, Model
from pipeline.surface import Surface
from pipeline.window import make_policy
from schemas.errors import ConfigError
from schemas.settings import RouteSettings, Settings
from workers.assembly import Deliver, EnginePort, Fail, Machinery, bucket_table
from workers.exits import EXIT_FAILED
from workers.logs import Log, configure, get_log
from workers.safety import Safety
from workers.seat import ALONE, Seat
from workers.worker import Worker

if TYPE_CHECKING:
    from pipeline.backends import ModelOrder


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the routes run on.

    Attributes:
        lanes: by route name.
        torch_device: where their tensors live.
    """

    lanes: Mapping[str, Lane]
    torch_device: str


LoadLanes = Callable[[Settings], Loaded]


def run_worker(settings: Settings, load: LoadLanes | None = None, seat: Seat = ALONE) -> int:
    """Run one worker until SIGTERM or SIGINT, in the main thread. Returns the exit code (see
    `Worker.run`); a second signal ends the process at once with code 1, and a native call that
    hangs with `EXIT_HUNG`.

    Args:
        load: loads what every route runs on; None for `load_lanes`.
        seat: its place in a fleet.

    Raises:
        ConfigError: `lifecycle.journal_dir` cannot be used, or a model is not there.
    """
    if load is None:
        _require_models(settings)
    configure(settings.log, seat.device)
    # One series more for every counter, which says when it was made: nobody asks for it.
    disable_created_metrics()
    log = get_log("frameloom.worker")
    safety = Safety(settings, log, _exit_now, seat.device)
    code, engine_ended = asyncio.run(
        _run(settings, lambda: machinery_of(settings, (load or load_lanes)(settings), safety), seat)
    )
    if not engine_ended:
        # A native call that hangs cannot be cancelled, and its thread would keep the process. The
        # journal stays: it says who is inside.
        log.error("engine_hangs", code=code)
        _exit_now(code)
    safety.close()
    if code == EXIT_FAILED:
        # A stage may be inside a native call that does not return, and Python waits for some
        # threads at its end.
        _exit_now(code)
    return code


def _require_models(settings: Settings) -> None:
    """Say that a model's file is missing before anything is loaded and the broker asked. A name
    that Ultralytics may publish is left to the loader, which fetches it where that is possible."""
    for route in settings.routes:
        path = Path(route.model)
        published = path.name.startswith("yolo") and path.parent.is_dir()
        if not path.exists() and not published:
            raise ConfigError(f"routes.{route.name}.model = {route.model}: no such file")


def load_lanes(settings: Settings) -> Loaded:
    """Load every route's model and warm it up for its buckets.

    Raises:
        ConfigError: a model, a class or a device that cannot be had.
    """
    log = get_log("frameloom.worker")
    device = settings.device.name
    lanes: dict[str, Lane] = {}
    for route in settings.routes:
        model = _load_route(settings, route, device, log)
        # `auto` is settled by the first model; the others follow it.
        device = str(model.device)
        lanes[route.name] = _lane(settings, route, model)
        log.info(
            "route_ready", route=route.name, input=route.input, model=model.info.name,
            version=model.info.version, backend=model.info.backend, device=device,
            decoder=lanes[route.name].decoder.name,
        )  # fmt: skip
    return Loaded(lanes, device)


def machinery_of(settings: Settings, loaded: Loaded, safety: Safety) -> Machinery:
    """What the worker is made with."""

    def make_engine(deliver: Deliver, fail: Fail) -> EnginePort:
        from pipeline.devices import make_device

        surface = Surface()
        # Watched from here on: loading and warming up may take longer than any frame.
        safety.guard.start()
        device = make_device(
            loaded.lanes,
            torch_device=loaded.torch_device,
            slots=settings.device.slots,
            guard=safety.guard,
        )
        return Engine(
            Batcher(make_policy(settings.window), surface),
            surface,
            device,
            deliver=deliver,
            fail=fail,
        )

    models = {name: lane.model.info for name, lane in loaded.lanes.items()}
    return Machinery(make_engine, models, safety.suspects, safety.guard)


def _load_route(settings: Settings, route: RouteSettings, device: str, log: Log) -> Model:
    from pipeline.backends import open_model
    from pipeline.devices import with_graphs

    opened = open_model(model_order(settings, route, device))
    for warning in opened.warnings:
        log.warning("backend_warning", route=route.name, detail=warning)
    choice = opened.choice
    log.info(
        "backend_chosen", route=route.name, backend=choice.backend, cached=choice.cached,
        figures=msgspec.to_builtins(choice.figures),
    )  # fmt: skip
    model = with_graphs(opened.model, wanted=settings.device.cuda_graphs)
    model.warm_up(bucket_table(route).buckets)
    return model


def model_order(settings: Settings, route: RouteSettings, device: str) -> ModelOrder:
    """What a route asks of its model."""
    from pipeline.backend_files import Loading
    from pipeline.backends import ModelOrder

    cache = settings.device.model_cache_dir
    return ModelOrder(
        path=route.model,
        backend=route.backend,
        precision=route.precision,
        buckets=tuple(bucket_table(route).buckets),
        loading=Loading(
            device=device, conf=route.conf, iou=route.iou, threads=settings.device.model_threads
        ),
        cache=None if cache is None else Path(cache),
    )


def _lane(settings: Settings, route: RouteSettings, model: Model) -> Lane:
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
        buckets=bucket_table(route).buckets,
    )


async def _run(settings: Settings, load: Callable[[], Machinery], seat: Seat) -> tuple[int, bool]:
    worker = Worker(settings, load, seat=seat)
    loop = asyncio.get_running_loop()
    stop = _on_signal(worker.request_stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    code = await worker.run()
    return code, worker.engine_ended


def _on_signal(drain: Callable[[], None]) -> Callable[[], None]:
    """The first signal drains; from then on, the next one ends the process at once, even when
    the event loop hangs."""

    def exit_now(_number: int, _frame: FrameType | None) -> None:
        _exit_now(EXIT_FAILED)

    def handle() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, exit_now)
        drain()

    return handle


def _exit_now(code: int) -> None:
    sys.stderr.flush()
    os._exit(code)
