"""The device on a GPU: the same stages, but each only puts work into streams, and events order it.

    decode   fills the slot's frames on its copy stream          records `copied`
    launch   copy → compute: waits for `copied` and for the      records `inferred`
             batch before, then the model
    return   compute → results: NMS, and one copy into pinned    records `returned`
             main memory
    post     boxes in source pixels, on the processor

Only `return` waits for the device, and only for events of the batch's own slot. So while one slot
infers, another is decoded and copied into, and the results of a third come back. A slot is free
again once its results are in main memory. The model's batches follow one another by events,
because its graphs share memory; no thread waits for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from pipeline.batch_work import Work, decode_batch, finished, take_errors
from pipeline.bucket import Bucket
from pipeline.cuda_runtime import CudaEvent, CudaRuntime, device_errors
from pipeline.guard import Guard, Unguarded
from pipeline.isolate import isolate
from pipeline.item import Batch
from pipeline.journal import Stage
from pipeline.letterbox import PAD_VALUE
from pipeline.native_calls import NativeCalls
from pipeline.ports import Clock, Lane
from pipeline.slot import SlotState, frames_bytes
from pipeline.slot_cuda import CudaSlot
from pipeline.slot_device import SlotDevice
from pipeline.table import Table, by_picture, empty
from pipeline.witness import rehearsal
from schemas.errors import FatalError
from schemas.result import Detection


@dataclass(slots=True, eq=False, kw_only=True)
class _Work(Work):
    """A batch with its slot, and what it holds.

    Attributes:
        raw_row: shape of one row's predictions; empty while no row has gone through the model.
        tables: row in the slot's predictions → what was found there.
    """

    slot: CudaSlot
    raw_row: torch.Size = field(default_factory=torch.Size)
    tables: dict[int, Table] = field(default_factory=dict[int, Table])


class CudaDevice(SlotDevice[CudaSlot, _Work]):
    """A GPU with slots, each of which has its own streams, events and memory.

    Implements the `Device` port. Setting one up runs every bucket's largest batch once.

    Args:
        lanes: route name → decoder, model, post-processor and buckets. Each is used by one thread
            only; models share one thread and never overlap on the device.
        runtime: streams, events and memory.
        slots: batches between start and the return of their results, ≥ 1; three keep decoding,
            model and return busy at once.
        guard: stands around every native call and every wait for the device.
        clock: monotonic seconds.
    """

    IDLE = frozenset({SlotState.FREE, SlotState.RETURNING})

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        runtime: CudaRuntime,
        *,
        slots: int = 3,
        guard: Guard | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._runtime = runtime
        self._native = NativeCalls(guard or Unguarded(), cuda=True)
        self._before: CudaEvent | None = None
        super().__init__(lanes, [CudaSlot(index, runtime) for index in range(slots)], clock)

    def _stages(self) -> Sequence[tuple[str, Callable[[_Work], None]]]:
        return [
            ("decode", self._decode),
            ("model", self._launch),
            ("return", self._return),
            ("post", self._finish),
        ]

    def _work(self, batch: Batch, slot: CudaSlot) -> _Work:
        return _Work(batch, self._clock(), slot=slot)

    def _prepare(self) -> None:
        """Give each slot its memory, and let its streams see every bucket's largest batch."""
        served = [(lane, bucket) for lane in self._lanes.values() for bucket in lane.buckets]
        nbytes = max((frames_bytes(bucket) for _, bucket in served), default=0)
        staged = any(not lane.decodes_on_gpu for lane, _ in served)
        floats = table_rows = 0
        for slot in self._slots:
            slot.reserve_frames(nbytes, staged=staged)
            for lane, bucket in served:
                with device_errors():
                    row = self._rehearse(lane, bucket, slot)
                floats = max(floats, bucket.max_batch * row.numel())
                table_rows = max(table_rows, bucket.max_batch * lane.postprocessor.max_det)
        for slot in self._slots:
            slot.reserve_results(floats, table_rows)

    def _rehearse(self, lane: Lane, bucket: Bucket, slot: CudaSlot) -> torch.Size:
        """Let the slot's streams see the largest batch: torch's cache of memory is kept per stream,
        and kernels load when they first run. Returns the shape of one row's predictions."""
        runtime, frames = self._runtime, slot.frames(bucket)
        if lane.decodes_on_gpu:
            with runtime.on(slot.copy):
                (error,) = lane.decoder.decode([rehearsal("", bucket)], frames[:1])
                if error is not None:
                    raise FatalError(f"{lane.decoder.name} cannot read a harmless picture: {error}")
                runtime.record(slot.copied, slot.copy)
            slot.copied.synchronize()
        with runtime.on(slot.compute):
            row = lane.model.infer(frames.fill_(PAD_VALUE)).shape[1:]
            runtime.record(slot.inferred, slot.compute)
        slot.inferred.synchronize()
        with runtime.on(slot.results):
            # Every anchor is a candidate, which is more than any picture has.
            lane.postprocessor.keep(torch.ones((1, *row), device=lane.model.device))
            runtime.record(slot.returned, slot.results)
        slot.returned.synchronize()
        return row

    def _decode(self, work: _Work) -> None:
        """The slot is free, so whatever used its buffers is over: `_return` has waited for it."""
        slot, batch, runtime = work.slot, work.batch, self._runtime
        lane = self._lanes[batch.route]
        frames = slot.frames(batch.bucket)
        with device_errors(), runtime.named(f"decode {batch.bucket.name}"):
            runtime.record(slot.began, slot.copy)
            if lane.decodes_on_gpu:
                with runtime.on(slot.copy):
                    decode_batch(work, lane.decoder, frames, self._native)
            else:
                staging = runtime.on_host(slot.staging(batch.bucket))
                decode_batch(work, lane.decoder, staging, self._native)
                good = len(work.rows)
                with runtime.on(slot.copy):
                    frames[:good].copy_(staging[:good], non_blocking=True)
            runtime.record(slot.copied, slot.copy)
        self._enter(slot, SlotState.DECODED)

    def _launch(self, work: _Work) -> None:
        slot, runtime = work.slot, self._runtime
        self._enter(slot, SlotState.INFERRING)
        with device_errors(), runtime.named(f"infer {work.batch.bucket.name}"):
            slot.compute.wait_event(slot.copied)
            if self._before is not None:
                slot.compute.wait_event(self._before)
            runtime.record(slot.started, slot.compute)
            if work.rows:
                with runtime.on(slot.compute):
                    self._launch_rows(work)
            runtime.record(slot.inferred, slot.compute)
        self._before = slot.inferred

    def _launch_rows(self, work: _Work) -> None:
        model = self._lanes[work.batch.route].model
        frames = work.slot.frames(work.batch.bucket)
        good = len(work.rows)

        def infer(start: int, stop: int) -> range:
            chosen = [work.batch.items[index] for index in work.rows[start:stop]]
            self._native.run(Stage.INFER, chosen, lambda: forward(start, stop))
            return range(start, stop)

        def forward(start: int, stop: int) -> None:
            # The next batch overwrites what a graph returns, so it is moved at once.
            raw = model.infer(frames[start:stop])
            work.raw_row = raw.shape[1:]
            work.slot.raw(good, work.raw_row)[start:stop].copy_(raw)

        def healthy() -> bool:
            blank = torch.full_like(frames[:1], PAD_VALUE)
            return self._native.works(Stage.INFER, lambda: model.infer(blank))

        pieces = isolate(good, infer, healthy, self._native.pause)
        take_errors(work, pieces, Stage.INFER)
        if work.rows and len(work.rows) < good:
            # Culprits left gaps: close them, upwards, so that no row is lost.
            raw = work.slot.raw(good, work.raw_row)
            kept = [row for piece in pieces if piece.value is not None for row in piece.value]
            for target, source in enumerate(kept):
                if target != source:
                    raw[target].copy_(raw[source])

    def _return(self, work: _Work) -> None:
        slot, runtime = work.slot, self._runtime
        # The batches' order in the streams is that of this thread's work, so one wait is the end of
        # everything that the slot has put into `copy` and `compute`.
        chosen = [work.batch.items[index] for index in work.rows]
        with device_errors(), runtime.named("wait"):
            self._native.run(Stage.RETURN, chosen, slot.inferred.synchronize)
            work.decode_s = runtime.elapsed_s(slot.began, slot.copied)
            work.infer_s = runtime.elapsed_s(slot.started, slot.inferred)
        self._enter(slot, SlotState.RETURNING)
        self._notify()
        began = self._clock()
        if work.rows:
            with device_errors(), runtime.named("nms"), runtime.on(slot.results):
                slot.results.wait_event(slot.inferred)
                self._fetch(work)
        work.post_s = self._clock() - began
        self._enter(slot, SlotState.FREE)
        self._notify()

    def _fetch(self, work: _Work) -> None:
        """Suppress on the device, row by row only where a row fails, and bring what is left."""
        keep = self._lanes[work.batch.route].postprocessor.keep
        slot, runtime = work.slot, self._runtime
        raw = slot.raw(len(work.rows), work.raw_row)

        def fetch(start: int, stop: int) -> list[Table]:
            chosen = [work.batch.items[index] for index in work.rows[start:stop]]
            return self._native.run(Stage.RETURN, chosen, lambda: bring(start, stop))

        def bring(start: int, stop: int) -> list[Table]:
            kept = keep(raw[start:stop])
            pinned = slot.table()[: len(kept)]
            pinned.copy_(kept, non_blocking=True)
            runtime.record(slot.returned, slot.results)
            slot.returned.synchronize()
            # A copy of some kilobytes, or the slot could not go on before post-processing.
            return by_picture(runtime.on_host(pinned).numpy().copy(), stop - start)

        def healthy() -> bool:
            nothing = torch.zeros_like(raw[:1])
            return self._native.works(Stage.RETURN, lambda: keep(nothing))

        pieces = isolate(len(work.rows), fetch, healthy, self._native.pause)
        # Suppression is post-processing, wherever it runs.
        take_errors(work, pieces, Stage.POST)
        tables = [table for piece in pieces for table in piece.value or ()]
        work.tables = dict(zip(work.rows, tables, strict=True))

    def _finish(self, work: _Work) -> None:
        began = self._clock()
        detections = self._detections(work)
        finished_at = self._clock()
        work.post_s += finished_at - began
        self._done.append(finished(work, detections, finished_at))
        self._notify()

    def _detections(self, work: _Work) -> dict[int, tuple[Detection, ...]]:
        """Index in the batch → detections, for every row that post-processing did not refuse."""
        if not work.rows:
            return {}
        answers = self._lanes[work.batch.route].postprocessor.answers
        items = [work.batch.items[index] for index in work.rows]
        tables = [work.tables[index] for index in work.rows]

        def post(start: int, stop: int) -> list[tuple[Detection, ...]]:
            geometries = [item.geometry for item in items[start:stop]]
            return self._native.run(
                Stage.POST, items[start:stop], lambda: answers(tables[start:stop], geometries)
            )

        def healthy() -> bool:
            return self._native.works(Stage.POST, lambda: answers([empty()], [items[0].geometry]))

        pieces = isolate(len(work.rows), post, healthy, self._native.pause)
        take_errors(work, pieces, Stage.POST)
        rows = [row for piece in pieces if piece.value is not None for row in piece.value]
        return dict(zip(work.rows, rows, strict=True))
