"""The worker's own parts without Kafka: a model that is loaded once, lanes and engines made of it,
and frames that wait in memory."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from bench.contender import Meter, Spent
from bench.kafka_load import Load
from bench.switched_lane import Switch, switched
from bench.worker_round import Span
from pipeline.batcher import Batcher
from pipeline.bucket import Bucket, BucketTable
from pipeline.decoders import DecoderKind, make_decoder
from pipeline.devices import make_device
from pipeline.engine import Engine
from pipeline.guard import Unguarded
from pipeline.item import Coordinates, Item, Outcome
from pipeline.ports import Lane
from pipeline.probe import ProbeLimits, probe
from pipeline.surface import Surface
from pipeline.window import make_policy
from schemas.codec import RawRecord, read_frame
from schemas.errors import FatalError
from schemas.settings import DeviceSettings, LimitSettings, LogSettings, RouteSettings, Settings
from workers.lanes import Loaded, load_lanes
from workers.logs import configure

CREDITS = 64
"""Frames inside at once, as `configs/cpu.yaml` allows."""
POLL = 32
LEAD = 96
"""Answers before a span begins, more than wait at once: of those that were there first, streams
with short intervals leave first, and their pictures are not the mix's."""
DEADLINE_S = 280.0
_KINDS: dict[str, DecoderKind] = {"opencv": "opencv", "dali-cpu": "dali"}


def rig_settings(route: RouteSettings, device: DeviceSettings | None = None) -> Settings:
    """A worker's settings for one route that is called `default`."""
    return Settings(routes=[route], device=device or DeviceSettings())


class Rig:
    """A route's model, loaded as the worker loads it, and fresh lanes around it.

    Args:
        settings: with one route.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Standard output is the table's.
        configure(LogSettings(level="warning"))
        self._loaded = load_lanes(settings)
        ((self._name, self._lane),) = self._loaded.lanes.items()
        self._device = self._loaded.torch_device
        # Chosen once: a choice among decoders by their speed may come out otherwise the next time.
        chosen = self._lane.decoder.name
        self._decoder: DecoderKind = _KINDS.get(chosen, settings.device.decoder)
        self._lane.decoder.close()

    @property
    def backend(self) -> str:
        return self._lane.model.info.backend

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self._lane.buckets

    @property
    def decoder(self) -> str:
        """Its name, as lanes are made with it."""
        return self._lane.decoder.name

    def lane(self) -> Lane:
        """The model with a decoder of its own: a device closes its decoders at its end."""
        asked = self.settings.device
        decoder = make_decoder(
            self._decoder,
            threads=asked.decode_threads or len(os.sched_getaffinity(0)),
            device=self._device,
            hw_decoder_load=asked.hw_decoder_load,
        )
        return replace(self._lane, decoder=decoder)

    def loaded(self, around: Callable[[Lane], Lane] = lambda lane: lane) -> Loaded:
        """What a worker is made with; `around` may put something between it and the lane. What it
        learns of batches is not to drop the surface that is kept for real workers."""
        lanes = {self._name: around(self.lane())}
        return replace(self._loaded, lanes=lanes, forget={self._name: lambda: None})

    def run(self, items: Sequence[Item], *, slots: int = 2) -> EngineRun:
        """Some of the items, again and again, through an engine that knows the surface as a
        worker's does, kept full: measured from the first answer after `LEAD` others on, for as
        many answers as there are items."""
        switch = Switch()
        span = Span(after=LEAD, frames=len(items), enough=switch.off)
        surface = Surface(self._loaded.surface)
        feed = _Feed(self.settings, switched(self.lane(), switch), self._device, slots, surface)
        return feed.run(items, span)


def run_engine(settings: Settings, lane: Lane, items: Sequence[Item], *, slots: int) -> EngineRun:
    """All items once through an engine of the worker's kind on this lane, from the first one in to
    the last one out.

    Raises:
        FatalError: it fails, refuses a frame, or takes too long.
    """
    return _Feed(settings, lane, "cpu", slots, Surface()).run(items)


def items_of(loads: Sequence[Load], buckets: Sequence[Bucket]) -> list[Item]:
    """The records as admission would hand them on."""
    table = BucketTable(buckets)
    limits = LimitSettings()
    probed = ProbeLimits(max_pixels=limits.max_pixels, max_scans=limits.max_scans)
    items: list[Item] = []
    for number, load in enumerate(loads):
        frame = read_frame(RawRecord("bench", 0, number, load.key, load.value, 0), limits)
        header = probe(frame, probed)
        bucket, geometry = table.choose(header.width, header.height)
        items.append(
            Item(
                attempt_id=number, coordinates=Coordinates("bench", 0, number), epoch=1,
                route="default", frame=frame, header=header, bucket=bucket, geometry=geometry,
                received_at=0.0,
            )
        )  # fmt: skip
    return items


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What an engine did while it was measured.

    Attributes:
        spent: of the whole process.
        decode_s, infer_s, post_s: sums over the batches that ended then.
    """

    spent: Spent
    decode_s: float
    infer_s: float
    post_s: float

    @property
    def stages_s(self) -> float:
        """How long it would take one after the other."""
        return self.decode_s + self.infer_s + self.post_s

    @property
    def longest_s(self) -> float:
        """The stage with the most to do: no overlap makes it shorter."""
        return max(self.decode_s, self.infer_s, self.post_s)


class _Feed:
    """One engine, kept full."""

    def __init__(
        self, settings: Settings, lane: Lane, device: str, slots: int, surface: Surface
    ) -> None:
        self._changed = threading.Condition()
        self._inside = self._answered = self._bad = 0
        self._stages = [0.0, 0.0, 0.0]
        self._batches = 0
        self._span: Span | None = None
        self._meter: Meter | None = None
        self._before = 0
        self._found: EngineRun | None = None
        self._failure: FatalError | None = None
        self._engine = Engine(
            Batcher(make_policy(settings.window), surface),
            surface,
            make_device(
                {"default": lane},
                torch_device=device,
                slots=slots,
                guard=Unguarded(),
                model_threads=settings.device.model_threads,
            ),
            deliver=self._deliver,
            fail=self._fail,
        )

    def run(self, items: Sequence[Item], span: Span | None = None) -> EngineRun:
        """The items once; or, until the span is over, again and again."""
        self._span = span
        self._engine.start()
        feed = itertools.cycle(items) if span else iter(items)
        if span is None:
            self._meter = Meter()
        try:
            while self._found is None and (polled := list(itertools.islice(feed, POLL))):
                self._wait(CREDITS - len(polled))
                with self._changed:
                    self._inside += len(polled)
                now = time.monotonic()
                self._engine.submit([msgspec.structs.replace(i, received_at=now) for i in polled])
            self._engine.drain()
            self._wait(0)
            found = self._found or self._measured(self._meter or Meter())
        finally:
            self._engine.stop(DEADLINE_S)
        if self._bad:
            raise FatalError(f"{self._bad} frames were refused")
        return found

    def _wait(self, at_most: int) -> None:
        with self._changed:
            passed = self._changed.wait_for(
                lambda: self._failure is not None or self._inside <= at_most, DEADLINE_S
            )
        if self._failure is not None:
            raise self._failure
        if not passed:
            raise FatalError(f"the engine did not finish in {DEADLINE_S:g} s")

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        times = outcomes[0].times
        with self._changed:
            self._inside -= len(outcomes)
            self._answered += len(outcomes)
            self._bad += sum(outcome.error is not None for outcome in outcomes)
            if times is not None:
                self._batches += 1
                for index, spent_s in enumerate((times.decode_s, times.infer_s, times.post_s)):
                    self._stages[index] += spent_s
            if self._span is not None:
                self._look(self._span)
            self._changed.notify_all()

    def _look(self, span: Span) -> None:
        """Begin or end the span with this answer."""
        if self._meter is None:
            if self._answered >= span.after:
                self._before, self._batches, self._stages = self._answered, 0, [0.0, 0.0, 0.0]
                self._meter = Meter()
        elif self._found is None and self._answered >= self._before + span.frames:
            self._found = self._measured(self._meter)
            span.enough()

    def _measured(self, meter: Meter) -> EngineRun:
        spent = meter.spent(self._answered - self._before, batches=self._batches)
        return EngineRun(spent, *self._stages)

    def _fail(self, error: FatalError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
