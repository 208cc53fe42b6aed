"""The worker's own parts without Kafka: a model that is loaded once, lanes and engines made of it,
and frames that wait in memory."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from bench.kafka_load import Load
from pipeline.batcher import Batcher
from pipeline.bucket import Bucket, BucketTable
from pipeline.decoders import make_decoder
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
from schemas.settings import DeviceSettings, LimitSettings, RouteSettings, Settings
from workers.lanes import Loaded, load_lanes

CREDITS = 256
"""Frames inside at once, as `flow.max_items` allows by default."""
POLL = 32
DEADLINE_S = 280.0


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
        self._loaded = load_lanes(settings)
        ((self._name, self._lane),) = self._loaded.lanes.items()
        self._device = self._loaded.torch_device
        self._lane.decoder.close()

    @property
    def backend(self) -> str:
        return self._lane.model.info.backend

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self._lane.buckets

    def lane(self, device: DeviceSettings | None = None) -> Lane:
        """The model with a decoder of its own: a device closes its decoders at its end."""
        asked = device or self.settings.device
        decoder = make_decoder(
            asked.decoder,
            threads=asked.decode_threads or len(os.sched_getaffinity(0)),
            device=self._device,
            hw_decoder_load=asked.hw_decoder_load,
        )
        return replace(self._lane, decoder=decoder)

    def loaded(self) -> Loaded:
        """What a worker is made with."""
        return replace(self._loaded, lanes={self._name: self.lane()})

    def run(self, items: Sequence[Item], *, slots: int = 2) -> EngineRun:
        """All items through an engine."""
        return run_engine(self.settings, self.lane(), items, slots=slots, device=self._device)


def run_engine(
    settings: Settings, lane: Lane, items: Sequence[Item], *, slots: int, device: str = "cpu"
) -> EngineRun:
    """All items through an engine of the worker's kind on this lane.

    Raises:
        FatalError: it fails, refuses a frame, or takes too long.
    """
    return _Feed(settings, lane, device, slots).run(items)


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
    """What an engine did.

    Attributes:
        frames: answered with detections.
        wall_s, cpu_s: from the first frame in to the last one out; CPU of the whole process.
        decode_s, infer_s, post_s: sums over its batches.
        batches: how many.
    """

    frames: int
    wall_s: float
    cpu_s: float
    decode_s: float
    infer_s: float
    post_s: float
    batches: int

    @property
    def rate(self) -> float:
        """Frames per second."""
        return self.frames / self.wall_s

    @property
    def stages_s(self) -> float:
        """How long it would take one after the other."""
        return self.decode_s + self.infer_s + self.post_s

    @property
    def longest_s(self) -> float:
        """The stage with the most to do: no overlap makes it shorter."""
        return max(self.decode_s, self.infer_s, self.post_s)


class _Feed:
    """One engine, kept full until everything is answered."""

    def __init__(self, settings: Settings, lane: Lane, device: str, slots: int) -> None:
        surface = Surface()
        self._changed = threading.Condition()
        self._inside = self._answered = self._bad = 0
        self._sums = [0.0, 0.0, 0.0]
        self._batches = 0
        self._failure: FatalError | None = None
        self._engine = Engine(
            Batcher(make_policy(settings.window), surface),
            surface,
            make_device({"default": lane}, torch_device=device, slots=slots, guard=Unguarded()),
            deliver=self._deliver,
            fail=self._fail,
        )

    def run(self, items: Sequence[Item]) -> EngineRun:
        """See `run_engine`."""
        self._engine.start()
        feed = iter(items)
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            while polled := list(itertools.islice(feed, POLL)):
                self._wait(CREDITS - len(polled))
                with self._changed:
                    self._inside += len(polled)
                now = time.monotonic()
                self._engine.submit([msgspec.structs.replace(i, received_at=now) for i in polled])
            self._engine.drain()
            self._wait(0)
            cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
        finally:
            self._engine.stop(DEADLINE_S)
        if self._bad:
            raise FatalError(f"{self._bad} frames were refused")
        decode_s, infer_s, post_s = self._sums
        return EngineRun(self._answered, wall_s, cpu_s, decode_s, infer_s, post_s, self._batches)

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
                    self._sums[index] += spent_s
            self._changed.notify_all()

    def _fail(self, error: FatalError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()
