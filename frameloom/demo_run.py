"""The demo's run: worker, producers and collector side by side, then an orderly end."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.live import Live

from frameloom.console import err
from frameloom.demo_answers import Answers, collect
from frameloom.demo_broken import BROKEN_STREAM, broken_records
from frameloom.demo_footage import Footage
from frameloom.demo_screen import live_view
from frameloom.demo_streams import StreamPlan
from frameloom.demo_traffic import Producers, Traffic
from frameloom.demo_worker import DemoWorker
from frameloom.reader import TopicReader
from schemas.errors import FrameloomError
from schemas.settings import KafkaSettings, Settings
from workers.kafka_clients import make_producer, start_client, stop_client

_CATCH_UP_S = 60.0
"""Of silence: a machine that is busy with other things may take longer for all of it."""
_LAST_ANSWERS_S = 5.0
_REFRESH_S = 0.25
_LOOK_EVERY_S = 0.05


@dataclass(slots=True)
class Played:
    """What came of the run.

    Attributes:
        traffic, answers: everything sent and answered.
        worker_busy: share of the machine (all cores) that the worker took while frames were
            produced, 0..1.
        trouble: what went wrong, one line each.
    """

    traffic: Traffic = field(default_factory=Traffic)
    answers: Answers = field(default_factory=Answers)
    worker_busy: float = 0.0
    trouble: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Script:
    """What to play: the streams, their pictures, the factor on their rates, for how long."""

    plans: Sequence[StreamPlan]
    footage: Mapping[str, Footage]
    scale: float
    seconds: float


async def play(settings: Settings, script: Script, folder: Path) -> Played:
    """Start the worker, produce, let it finish, stop it with SIGTERM.

    Args:
        settings: of the worker; its topics exist.
        script: what to play.
        folder: for the worker's settings and log.

    Raises:
        WorkerError: the worker did not start.
        TransientError: the broker does not answer.
    """
    route = settings.routes[0]
    began_at = time.monotonic()
    async with DemoWorker(settings, folder) as worker:
        err.print(f"worker ready after {time.monotonic() - began_at:.1f} s")
        topics = (route.output, route.dead_letter)
        async with TopicReader(settings.kafka, *topics, from_start=True) as reader:
            run = _Run(script, worker, Played())
            try:
                async with asyncio.TaskGroup() as group:
                    collecting = group.create_task(
                        collect(reader, route.dead_letter, run.played.answers)
                    )
                    showing = group.create_task(run.show())
                    await run.produce(settings.kafka, route.input)
                    await run.finish()
                    collecting.cancel()
                    showing.cancel()
            except* FrameloomError as errors:
                raise errors.exceptions[0] from None
            return run.played


class _Run:
    """The steps of one run and what they share."""

    def __init__(self, script: Script, worker: DemoWorker, played: Played) -> None:
        self.played = played
        self._script = script
        self._worker = worker
        self._began_at = time.monotonic()
        self._note = ""

    async def produce(self, kafka: KafkaSettings, topic: str) -> None:
        """Play all streams for the script's time."""
        script, traffic = self._script, self.played.traffic
        broken = broken_records(script.footage[script.plans[0].stream].shots[0].jpeg)
        producer = make_producer(kafka)
        await start_client(producer, kafka)
        try:
            self._began_at = time.monotonic()
            cpu_before_s = self._worker.cpu_s()
            self._note = "producing"
            players = Producers(producer, topic, script.scale, traffic)
            await players.play(script.plans, script.footage, broken, script.seconds)
            elapsed_s = time.monotonic() - self._began_at
            cpu_s = self._worker.cpu_s() - cpu_before_s
            self.played.worker_busy = cpu_s / elapsed_s / (os.cpu_count() or 1)
        finally:
            await stop_client(producer)
        if traffic.failed:
            self.played.trouble.append(f"{traffic.failed} records were not acknowledged")

    async def finish(self) -> None:
        """Let the worker answer what is there, then end it; both have deadlines."""
        self._note = "catching up"
        await self._until_answered(_CATCH_UP_S)
        self._note = "draining the worker"
        code = await self._worker.drain()
        if code != 0:
            last_words = self._worker.last_words()
            self.played.trouble.append(f"the worker ended with {code}\n{last_words}")
        await self._until_answered(_LAST_ANSWERS_S)
        if self.played.answers.unreadable:
            number = self.played.answers.unreadable
            self.played.trouble.append(f"{number} answers could not be read")

    async def show(self) -> None:
        """The live view, until cancelled."""
        streams = [plan.stream for plan in self._script.plans] + [BROKEN_STREAM]
        with Live(console=err, auto_refresh=False, transient=True) as live:
            while True:
                gone = (time.monotonic() - self._began_at) / self._script.seconds
                played = self.played
                view = live_view(streams, played.traffic, played.answers, gone, self._note)
                live.update(view, refresh=True)
                await asyncio.sleep(_REFRESH_S)

    async def _until_answered(self, timeout_s: float) -> None:
        """Wait until every record has an answer, the worker has ended, or for so long none came."""
        give_up_at = time.monotonic() + timeout_s
        ended_at: float | None = None
        answered = len(self.played.answers.all)
        while self.played.answers.missing(self.played.traffic.sent):
            now = time.monotonic()
            if len(self.played.answers.all) > answered:
                answered, give_up_at = len(self.played.answers.all), now + timeout_s
            if not self._worker.alive and ended_at is None:
                ended_at = now
            # What an ended worker sent last may still be on its way to us.
            if now > give_up_at or (ended_at is not None and now > ended_at + _LAST_ANSWERS_S):
                return
            await asyncio.sleep(_LOOK_EVERY_S)
