"""The real worker, put together as `frameloom worker` does, until it has answered everything."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from bench.contender import ContenderError, Meter, Order, Spent
from bench.kafka_load import kafka_settings
from pipeline import metrics as m
from schemas.settings import (
    HttpSettings,
    LifecycleSettings,
    LogSettings,
    RouteSettings,
    Settings,
)
from workers.detect import machinery_of
from workers.lanes import Loaded
from workers.lifecycle import WorkerState
from workers.logs import configure, get_log
from workers.safety import Safety
from workers.worker import Worker

LOOK_S = 0.02
"""Looking costs the process some 50 µs."""
LOOK_IN_SPAN_S = 0.05
"""Less often where rounds take seconds: what is counted and the clock are read together."""
DEADLINE_S = 280.0


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a round that is measured: what comes before and after it is not.

    It begins when the first look finds so many answers, and ends when one finds `after + frames`:
    both are counts of the whole round, so nothing is waited for that is not there. Answers come
    several at once, and what came between a count and the look is not measured.

    Attributes:
        after: answers before it begins.
        frames: answers in it, about.
        enough: called at its end, before the worker drains.
        broker: process id, whose processor time is measured beside.
    """

    after: int
    frames: int
    enough: Callable[[], None] = lambda: None
    broker: int | None = None


def settings_of(order: Order, route: RouteSettings) -> Settings:
    """The worker's settings for one round; what is not said here is as anybody's."""
    return Settings(
        kafka=kafka_settings(order.bootstrap, order.group),
        routes=[
            RouteSettings(
                input=order.input, output=order.output, dead_letter=order.dead_letter,
                model=route.model, backend=route.backend, buckets=route.buckets,
            )
        ],
        http=HttpSettings(enabled=False),
        log=LogSettings(level="warning"),
    )  # fmt: skip


async def worker_round(
    settings: Settings, load: Callable[[Settings], Loaded], frames: int | Span
) -> Spent:
    """Run a worker until it has answered so many frames, then drain it.

    Args:
        frames: measured from the joining of the group on; or a span of answers.

    Returns:
        What the measured frames took; 0 frames where a span was over before it could begin.

    Raises:
        ContenderError: it ended before, answered with dead letters, or took too long.
    """
    configure(settings.log)
    log = get_log("frameloom.bench")
    with tempfile.TemporaryDirectory() as folder:
        settings = msgspec.structs.replace(
            settings, lifecycle=LifecycleSettings(journal_dir=folder)
        )
        safety = Safety(settings, log, os._exit)
        loaded = load(settings)
        worker = Worker(settings, lambda: machinery_of(settings, loaded, safety))
        running = asyncio.ensure_future(worker.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                if isinstance(frames, Span):
                    spent = await span_of(running, worker.metrics, frames)
                else:
                    spent = await _whole(running, worker, frames)
        except TimeoutError:
            raise ContenderError(f"the worker took more than {DEADLINE_S:g} s") from None
        finally:
            worker.request_stop()
            await running
            safety.close()
    return spent


async def _whole(running: asyncio.Future[int], worker: Worker, frames: int) -> Spent:
    await _until(running, lambda: worker.state is WorkerState.RUNNING)
    meter = Meter()
    await _until(running, lambda: bool(worker.assigned))
    meter.first()
    await _reach(running, worker.metrics, m.ANSWERED, frames)
    return meter.spent(frames, _batches(worker))


async def span_of(running: asyncio.Future[int], metrics: m.Metrics, span: Span) -> Spent:
    """What a span took; 0 frames where the worker had answered all of it at the first look.

    Raises:
        ContenderError: the worker ended before, or answered with dead letters.
    """
    await _reach(running, metrics, m.ANSWERED, max(1, span.after))
    meter = Meter(span.broker)
    answered, batches = metrics.total(m.ANSWERED), metrics.total(m.BATCHES)
    await _reach(running, metrics, m.ANSWERED, span.after + span.frames, LOOK_IN_SPAN_S)
    spent = meter.spent(
        round(metrics.total(m.ANSWERED) - answered),
        batches=round(metrics.total(m.BATCHES) - batches),
    )
    span.enough()
    return spent


def _batches(worker: Worker) -> str:
    batches = worker.metrics.total(m.BATCHES)
    return f"{worker.metrics.total(m.ANSWERED) / batches:.1f} frames a batch" if batches else ""


async def _reach(
    running: asyncio.Future[int],
    metrics: m.Metrics,
    metric: m.Metric,
    count: int,
    every_s: float = LOOK_S,
) -> None:
    def reached() -> bool:
        if metrics.total(m.DEAD_LETTERED):
            raise ContenderError("the worker answered with dead letters")
        return metrics.total(metric) >= count

    await _until(running, reached, every_s)


async def _until(
    running: asyncio.Future[int], happened: Callable[[], bool], every_s: float = LOOK_S
) -> None:
    while not happened():
        if running.done():
            raise ContenderError(f"the worker ended with {running.result()}")
        await asyncio.sleep(every_s)
