"""`frameloom demo`: broker, producers and the real worker on this machine, and a report.

The order of things: draw the pictures, measure what the machine can take, start broker and
worker, play all streams for a while, let the worker finish, stop it with SIGTERM, judge.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from bench import scenes
from bench.scenes import CLASSES
from frameloom.broker import EmbeddedBroker
from frameloom.console import EXIT_DONE, EXIT_FAILED, err, make_folder
from frameloom.demo_broken import BROKEN_STREAM
from frameloom.demo_footage import Footage, count_shots, draw_footage
from frameloom.demo_report import Calibration, Evidence, Report, build_report
from frameloom.demo_run import Played, Script, play
from frameloom.demo_screen import calibration_lines
from frameloom.demo_sheet import write_sheet
from frameloom.demo_streams import StreamPlan, plan_streams
from frameloom.topics import create_route_topics
from schemas.errors import ConfigError
from schemas.settings import DEFAULT_BUCKETS, KafkaSettings, RouteSettings, Settings

_PARTITIONS = 4
_DEMO_WEIGHTS = Path(scenes.__file__).parent / "assets" / "frameloom-demo.pt"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the user chose.

    Attributes:
        streams: at least one of each kind.
        seconds: how long frames are produced.
        model: a path or a name that Ultralytics knows; None for the demo's own weights.
        folder: gets report, contact sheet, the worker's settings and the logs.
        seed: of the scenes.
    """

    streams: int
    seconds: float
    model: str | None
    folder: Path
    seed: int


def demo_exit_code(report: Report) -> int:
    """0 when the demo passed, else 1."""
    return EXIT_FAILED if report.failures else EXIT_DONE


async def run_demo(options: DemoOptions) -> Report:
    """The whole demo; `report.json` and `contact-sheet.png` are written to its folder.

    Whatever it started has ended when this returns, raises or is cancelled.

    Raises:
        ConfigError: the weights or the folder cannot be used.
        FrameloomError: a part of it could not be started.
    """
    make_folder("--out", options.folder)
    plans = plan_streams(options.streams, options.seed)
    route = _route(options)
    footage = await _with_progress(
        "drawing scenes", count_shots(plans), lambda tick: draw_footage(plans, tick)
    )
    calibration, labels = await _calibrate(plans, footage, route)
    with EmbeddedBroker(log_path=options.folder / "broker.log") as broker:
        err.print(f"broker at {broker.bootstrap_servers}")
        settings = Settings(
            kafka=KafkaSettings(
                bootstrap_servers=broker.bootstrap_servers,
                group_id=f"frameloom-demo-{uuid.uuid4().hex[:8]}",
            ),
            routes=[route],
        )
        await create_route_topics(settings, partitions=_PARTITIONS, replication=1)
        script = Script(plans, footage, calibration.scale, options.seconds)
        played = await play(settings, script, options.folder)
    report = build_report(_evidence(options, plans, footage, calibration, labels, played))
    await asyncio.to_thread(_write, options.folder, report, plans, footage, played)
    return report


def _route(options: DemoOptions) -> RouteSettings:
    model = options.model
    if model is None:
        if not _DEMO_WEIGHTS.is_file():
            raise ConfigError(f"the demo's weights are missing: {_DEMO_WEIGHTS}")
        model = str(_DEMO_WEIGHTS)
    return RouteSettings(
        name="demo", input="frames", output="detections", dead_letter="frames.dlq", model=model
    )


async def _calibrate(
    plans: Sequence[StreamPlan], footage: Mapping[str, Footage], route: RouteSettings
) -> tuple[Calibration, Mapping[int, str]]:
    """Measure, choose the rates and say so. Also the model's labels."""
    # Here, not at the top: torch takes seconds to import and `--help` must not.
    err.print("loading the model (the first time it is exported and measured, too) ...")
    from frameloom import demo_calibration as calibrating

    measured = await _with_progress(
        "measuring decoder and model",
        len(plans),
        lambda tick: calibrating.measure(plans, footage, route, DEFAULT_BUCKETS, tick),
    )
    rates = {plan.stream: plan.kind.fps for plan in plans}
    target = calibrating.target_busy(measured.others_busy)
    scale = calibrating.choose_scale(rates, measured.cost_s, target)
    calibration = Calibration(
        scale=scale,
        frames_per_s=scale * sum(rates.values()),
        predicted_busy=calibrating.busy(rates, measured.cost_s, scale),
        measured_busy=None,
        others_busy=measured.others_busy,
        cost_ms={stream: cost * 1000 for stream, cost in measured.cost_s.items()},
        decoder=measured.decoder,
        device=measured.device,
        model=measured.model,
    )
    for line in calibration_lines(calibration, plans):
        err.print(line)
    return calibration, measured.labels


def _evidence(
    options: DemoOptions,
    plans: Sequence[StreamPlan],
    footage: Mapping[str, Footage],
    calibration: Calibration,
    labels: Mapping[int, str],
    played: Played,
) -> Evidence:
    same_classes = tuple(labels.get(i) for i in range(len(labels))) == CLASSES
    truths = {p.stream: [shot.truths for shot in footage[p.stream].shots] for p in plans}
    return Evidence(
        seconds=options.seconds,
        streams=[*(plan.stream for plan in plans), BROKEN_STREAM],
        calibration=msgspec.structs.replace(calibration, measured_busy=played.worker_busy),
        sent=played.traffic.sent,
        answers=played.answers.all,
        truths=truths if same_classes else {},
        max_batch={bucket.name: bucket.ceiling for bucket in DEFAULT_BUCKETS},
        trouble=played.trouble,
    )


def _write(
    folder: Path,
    report: Report,
    plans: Sequence[StreamPlan],
    footage: Mapping[str, Footage],
    played: Played,
) -> None:
    document = msgspec.json.format(msgspec.json.encode(report), indent=2)
    try:
        (folder / "report.json").write_bytes(document + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write {folder / 'report.json'}: {error.strerror}") from error
    sheet = folder / "contact-sheet.png"
    write_sheet(sheet, report, plans, footage, played.traffic.sent, played.answers.all)


class _AbandonedError(Exception):
    """Raised in a thread whose work nobody waits for any more."""


async def _with_progress(
    title: str, total: int, work: Callable[[Callable[[], None]], Result]
) -> Result:
    """Run blocking work in a thread under a progress bar. The work is given a function to call
    after each step, through which it also ends when this is cancelled."""
    abandoned = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err) as progress:
        task = progress.add_task(title, total=total)

        def tick() -> None:
            if abandoned.is_set():
                raise _AbandonedError
            progress.advance(task)

        working = asyncio.ensure_future(asyncio.to_thread(work, tick))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            abandoned.set()
            with suppress(_AbandonedError):
                await working
            raise
