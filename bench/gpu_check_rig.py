"""What the GPU check runs on: pictures, models, and the engine fed from main memory."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import cv2
import torch
from msgspec import structs

from bench.frame_item import frame_item
from bench.host_runtime import HostGraphs, HostRuntime
from bench.scenes import HELD_OUT, Scene
from pipeline.batcher import Batcher
from pipeline.bucket import Bucket
from pipeline.cuda_graphs import GraphableModel, GraphedModel, TorchGraphs
from pipeline.cuda_runtime import CudaRuntime, TorchCuda
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.decoders import DecoderKind, fills_gpu, make_decoder
from pipeline.engine import Engine
from pipeline.item import Batch, Coordinates, Item, Outcome
from pipeline.ports import Decoder, Lane, Model
from pipeline.postprocess import YoloPostprocessor
from pipeline.slots_cuda import CudaDevice
from pipeline.surface import Surface
from pipeline.window import FixedPolicy
from schemas.errors import FatalError
from schemas.frame import Encoding, FrameMessage
from schemas.result import ClosedBy, Detection

CONF, IOU, MAX_DET = 0.25, 0.7, 300
_DEADLINE_S = 120.0
_FRAMES_MADE = 4096
_AT_ONCE = 16
"""Frames submitted together, as a poll would bring them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and how much of it.

    Attributes:
        device: where; `cpu` rehearses.
        bucket: of the speed runs.
        source: width and height of their pictures.
        pictures: how many different ones.
        seconds: of each speed run.
        slots: of the device.
        decode_threads: for decoders that have some.
    """

    device: torch.device
    bucket: Bucket
    source: tuple[int, int]
    pictures: int
    seconds: float
    slots: int
    decode_threads: int

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def runtime(self) -> CudaRuntime:
        return TorchCuda(self.device) if self.on_gpu else HostRuntime()

    def graphed(self, model: GraphableModel) -> GraphedModel:
        return GraphedModel(model, TorchGraphs(self.device) if self.on_gpu else HostGraphs())

    def decoder(self, kind: DecoderKind, hw_decoder_load: float = 0.9) -> Decoder:
        return make_decoder(
            kind,
            threads=self.decode_threads,
            device=str(self.device),
            hw_decoder_load=hw_decoder_load,
        )

    def allocations(self) -> dict[str, int]:
        """What was ever taken from the driver, and from torch's cache; zeros without a GPU."""
        if not self.on_gpu:
            return {"segments": 0, "pinned": 0, "blocks": 0}
        device = torch.cuda.memory_stats(self.device)
        host = torch.cuda.host_memory_stats()
        return {
            "segments": int(device["segment.all.allocated"]),
            "pinned": int(host["num_host_alloc"]),
            "blocks": int(device["allocation.all.allocated"]),
        }

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.device)


def scene_items(plan: Plan) -> list[Item]:
    """Different JPEGs of the plan's source size, as cameras send them."""
    items: list[Item] = []
    for number in range(plan.pictures):
        picture, _ = Scene(HELD_OUT + number, *plan.source).frame(5.0)
        encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
        items.append(frame_item(encoded, Encoding.JPEG, plan.bucket))
    return items


def a_lane(model: Model, decoder: Decoder, buckets: Sequence[Bucket]) -> Lane:
    post = YoloPostprocessor(model.labels, conf=CONF, iou=IOU, max_det=MAX_DET)
    return Lane(decoder, model, post, fills_gpu(decoder), tuple(buckets))


def numbered(items: Sequence[Item]) -> Iterator[Item]:
    """The items over and over, each time as a new frame of one of 64 streams."""
    for number, item in enumerate(itertools.cycle(items), start=1):
        frame = replace_stream(item.frame, f"camera-{number % 64}", number)
        place = Coordinates("check", number % 64, number)
        yield structs.replace(item, attempt_id=number, coordinates=place, frame=frame)


def replace_stream(frame: FrameMessage, stream: str, seq: int) -> FrameMessage:
    return FrameMessage(
        stream_id=stream,
        seq=seq,
        captured_at_us=0,
        encoding=frame.encoding,
        data=frame.data,
        ordered=False,
    )


@dataclass(slots=True)
class Load:
    """What a loaded engine did between two instants.

    Attributes:
        frames: answered.
        seconds: between.
        batches: finished; `sizes` their frames.
        decode_s, infer_s, post_s: sums over the batches, each batch by itself.
        errors: frames that were not answered with detections.
        taken: memory taken from the driver meanwhile, in calls: device and pinned.
    """

    frames: int = 0
    seconds: float = 0.0
    sizes: list[int] = field(default_factory=list[int])
    decode_s: float = 0.0
    infer_s: float = 0.0
    post_s: float = 0.0
    errors: int = 0
    taken: tuple[int, int] = (0, 0)

    @property
    def rate(self) -> float:
        return self.frames / self.seconds

    @property
    def busy(self) -> float:
        """Share of the time in which the model ran."""
        return self.infer_s / self.seconds

    @property
    def busiest(self) -> float:
        """Share of the time in which the stage with the most to do is at work: near 1 where the
        others overlap with it, and less where it waits for them."""
        return max(self.decode_s, self.infer_s, self.post_s) / self.seconds

    def fill(self, largest: int) -> float:
        return sum(self.sizes) / (len(self.sizes) * largest) if self.sizes else 0.0


class LoadedEngine:
    """The worker's engine on a device, kept full of frames from main memory."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        self._plan = plan
        self._room = plan.bucket.max_batch * (plan.slots + 3)
        self._load = Load()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._failure: FatalError | None = None
        surface = Surface()
        device = CudaDevice({"default": lane}, plan.runtime(), slots=plan.slots)
        # Full batches: what saturation looks like, and independent of the pictures' own pace.
        self._engine = Engine(
            Batcher(FixedPolicy(1.0), surface),
            surface,
            device,
            deliver=self._deliver,
            fail=self._fail,
        )

    def run(self, items: Sequence[Item], seconds: float, *, warm_up_s: float) -> Load:
        """Feed for so long and return what it did after the warm-up.

        Raises:
            FatalError: the device failed.
        """
        self._engine.start()
        try:
            # Made before the clock runs. More than there is room for: none comes again before its
            # answer.
            made = max(_FRAMES_MADE, 2 * self._room)
            feed = itertools.cycle(list(itertools.islice(numbered(items), made)))
            self._feed(feed, warm_up_s)
            load = self.begin()
            before, began = self._plan.allocations(), time.monotonic()
            self._feed(feed, seconds)
            self.begin()
            load.seconds = time.monotonic() - began
            after = self._plan.allocations()
            load.taken = (
                after["segments"] - before["segments"],
                after["pinned"] - before["pinned"],
            )
            return load
        finally:
            self._engine.stop(_DEADLINE_S)

    def begin(self) -> Load:
        """Count anew from here."""
        with self._lock:
            self._load = Load()
            return self._load

    def _feed(self, feed: Iterator[Item], seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._failure is not None:
                raise self._failure
            with self._changed:
                if not self._changed.wait_for(lambda: self._room > 0, min(left, 1.0)):
                    continue
                taken = min(self._room, _AT_ONCE)
                self._room -= taken
            self._engine.submit(list(itertools.islice(feed, taken)))

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        with self._lock:
            load = self._load
            load.frames += len(outcomes)
            load.errors += sum(outcome.error is not None for outcome in outcomes)
            times = outcomes[0].times
            if times is not None:
                load.sizes.append(len(outcomes))
                load.decode_s += times.decode_s
                load.infer_s += times.infer_s
                load.post_s += times.post_s
            self._room += len(outcomes)
            self._changed.notify()

    def _fail(self, error: FatalError) -> None:
        self._failure = error


class Direct:
    """One batch at a time through a lane, stage after stage, in main memory and eagerly: what the
    device's answers are compared with."""

    def __init__(self, model: Model) -> None:
        self._decoder = OpenCvDecoder()
        self._model = model
        self._post = YoloPostprocessor(model.labels, conf=CONF, iou=IOU, max_det=MAX_DET)

    def answers(self, item: Item) -> tuple[Detection, ...]:
        bucket = item.bucket
        frames = torch.empty((1, bucket.height, bucket.width, 3), dtype=torch.uint8)
        (error,) = self._decoder.decode([item], frames)
        if error is not None:
            raise error
        return self._post.detections(self._model.infer(frames), [item.geometry])[0]


class Driven:
    """A CUDA device driven batch by batch."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        self._device = CudaDevice({"default": lane}, plan.runtime(), slots=plan.slots)
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._device.listen(self._notify)

    def run(self, batches: Sequence[Sequence[Item]]) -> list[tuple[Outcome, ...]]:
        """All of them, as many at once as there are slots. Outcomes in the batches' order.

        Raises:
            FatalError: the device failed.
        """
        done: list[tuple[Outcome, ...]] = []
        for items in batches:
            self._until(lambda: self._device.free_slots > 0)
            batch = Batch(
                next(self._ids), "default", items[0].bucket, tuple(items), ClosedBy.FULL, 0.0
            )
            self._device.start(batch)
            done += [each.outcomes for each in self._device.collect()]
        while len(done) < len(batches):
            found: list[tuple[Outcome, ...]] = []

            def arrived(found: list[tuple[Outcome, ...]] = found) -> bool:
                found.extend(each.outcomes for each in self._device.collect())
                return bool(found)

            self._until(arrived)
            done += found
        return done

    def close(self) -> None:
        self._device.close()
        self._device.join(_DEADLINE_S)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            passed = self._changed.wait_for(
                lambda: self._device.failure is not None or condition(), _DEADLINE_S
            )
        if self._device.failure is not None:
            raise self._device.failure
        if not passed:
            raise FatalError(f"the device did nothing for {_DEADLINE_S:.0f} s")
