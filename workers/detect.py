"""The composition root of the detection worker: settings → machinery → a running process.

What imports torch is imported where a model is loaded (`workers/lanes.py`): that takes seconds, and
a wrong setting or a missing topic is to be said before.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pipeline.batcher import Batcher
from pipeline.bucket import BucketTable
from pipeline.drift import Drift
from pipeline.engine import Engine
from pipeline.surface import Surface
from pipeline.window import make_policy
from schemas.errors import ConfigError
from schemas.settings import Settings
from workers.assembly import Deliver, EnginePort, Fail, Machinery
from workers.exits import EXIT_FAILED
from workers.lanes import Loaded, load_lanes
from workers.logs import configure, get_log
from workers.safety import Safety
from workers.seat import ALONE, Seat
from workers.stop_signals import StopSignals
from workers.worker import Worker

LoadLanes = Callable[[Settings], Loaded]


def run_worker(settings: Settings, load: LoadLanes | None = None, seat: Seat = ALONE) -> int:
    """Run one worker until SIGTERM or SIGINT, in the main thread. Returns the exit code (see
    `Worker.run`); a second signal ends the process with code 1 (see `StopSignals`), and a native
    call that hangs with `EXIT_HUNG`.

    Args:
        load: loads what every route runs on; None for `load_lanes`.
        seat: its place in a fleet.

    Raises:
        ConfigError: `lifecycle.journal_dir` cannot be used, or a model is not there.
    """
    if load is None:
        _require_models(settings)
    configure(settings.log, seat.device)
    log = get_log("frameloom.worker")
    safety = Safety(settings, log, _exit_now, seat.device)
    stopping = threading.Event()
    signals = StopSignals(log, _exit_now)
    signals.install()

    def load_all() -> Machinery:
        loaded = load_lanes(settings, stopping.is_set) if load is None else load(settings)
        return machinery_of(settings, loaded, safety)

    code, engine_ended = asyncio.run(_run(settings, load_all, stopping, seat, signals))
    signals.ended()
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
            # The default is below the repository, and a worker may be started anywhere.
            where = "" if path.is_absolute() else f" in {Path.cwd()}"
            raise ConfigError(f"routes.{route.name}.model = {route.model}: no such file{where}")


def machinery_of(settings: Settings, loaded: Loaded, safety: Safety) -> Machinery:
    """What the worker is made with."""

    def make_engine(deliver: Deliver, fail: Fail) -> EnginePort:
        from pipeline.devices import make_device

        surface = Surface(loaded.surface)

        def drifted(drift: Drift) -> None:
            # Faster than measured: something else was busy then, and the next start is to measure
            # anew. Slower says that something else is busy now.
            if drift.alarmed and drift.ratio < 1.0:
                loaded.forget[drift.route]()

        # Watched from here on: loading and warming up may take longer than any frame.
        safety.guard.start()
        device = make_device(
            loaded.lanes,
            torch_device=loaded.torch_device,
            slots=settings.device.slots,
            guard=safety.guard,
            model_threads=settings.device.model_threads,
        )
        return Engine(
            Batcher(make_policy(settings.window), surface),
            surface,
            device,
            deliver=deliver,
            fail=fail,
            drifted=drifted,
        )

    models = {name: lane.model.info for name, lane in loaded.lanes.items()}
    tables = {
        name: BucketTable(lane.buckets) for name, lane in loaded.lanes.items() if lane.buckets
    }
    return Machinery(make_engine, models, safety.suspects, safety.guard, tables)


async def _run(
    settings: Settings,
    load: Callable[[], Machinery],
    stopping: threading.Event,
    seat: Seat,
    signals: StopSignals,
) -> tuple[int, bool]:
    worker = Worker(settings, load, seat=seat)
    loop = asyncio.get_running_loop()

    def request_stop() -> None:
        worker.request_stop()
        # The thread that loads is waited for: it must not begin to measure.
        stopping.set()

    signals.attach(worker, lambda: loop.call_soon_threadsafe(request_stop))
    code = await worker.run()
    return code, worker.engine_ended


def _exit_now(code: int) -> None:
    sys.stderr.flush()
    os._exit(code)
