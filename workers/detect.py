"""The composition root of the detection worker: settings → machinery → a running process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from prometheus_client import disable_created_metrics

from pipeline.batcher import Batcher
from pipeline.decoders import make_decoder
from pipeline.engine import Engine
from pipeline.model import YoloModel, load_model
from pipeline.ports import Lane
from pipeline.postprocess import YoloPostprocessor
from pipeline.slots import ThreadedDevice
from pipeline.surface import Surface
from pipeline.window import make_policy
from schemas.settings import RouteSettings, Settings
from workers.assembly import Deliver, EnginePort, Fail, Machinery, bucket_table
from workers.logs import configure, get_log
from workers.worker import EXIT_FAILED, Worker


def run_worker(settings: Settings) -> int:
    """Run one worker until SIGTERM or SIGINT, in the main thread. Returns the exit code (see
    `Worker.run`); a second signal ends the process at once with code 1."""
    configure(settings.log)
    # One series more for every counter, which says when it was made: nobody asks for it.
    disable_created_metrics()
    code, engine_ended = asyncio.run(_run(settings))
    if not engine_ended:
        # A native call that hangs cannot be cancelled, and its thread would keep the process.
        get_log("frameloom.worker").error("engine_hangs", code=code)
        _exit_now(code)
    return code


def load_machinery(settings: Settings) -> Machinery:
    """Load every route's model and warm it up for its buckets.

    Raises:
        ConfigError: a model, a class or a device that cannot be had.
    """
    log = get_log("frameloom.worker")
    device = settings.device.name
    lanes: dict[str, Lane] = {}
    for route in settings.routes:
        model = _load_route(settings, route, device)
        # `auto` is settled by the first model; the others follow it.
        device = str(model.device)
        lanes[route.name] = _lane(settings, route, model)
        log.info(
            "route_ready", route=route.name, input=route.input, model=model.info.name,
            version=model.info.version, device=device, decoder=lanes[route.name].decoder.name,
        )  # fmt: skip

    def make_engine(deliver: Deliver, fail: Fail) -> EnginePort:
        surface = Surface()
        return Engine(
            Batcher(make_policy(settings.window), surface),
            surface,
            ThreadedDevice(lanes, slots=settings.device.slots, torch_device=device),
            deliver=deliver,
            fail=fail,
        )

    return Machinery(make_engine, {name: lane.model.info for name, lane in lanes.items()})


def _load_route(settings: Settings, route: RouteSettings, device: str) -> YoloModel:
    model = load_model(
        route.model,
        device=device,
        conf=route.conf,
        iou=route.iou,
        threads=settings.device.model_threads,
    )
    model.warm_up(bucket_table(route).buckets)
    return model


def _lane(settings: Settings, route: RouteSettings, model: YoloModel) -> Lane:
    threads = settings.device.decode_threads or len(os.sched_getaffinity(0))
    return Lane(
        decoder=make_decoder(settings.device.decoder, threads=threads, device=str(model.device)),
        model=model,
        postprocessor=YoloPostprocessor(
            model.labels,
            conf=route.conf,
            iou=route.iou,
            max_det=route.max_det,
            classes=route.classes,
        ),
    )


async def _run(settings: Settings) -> tuple[int, bool]:
    worker = Worker(settings, lambda: load_machinery(settings))
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
