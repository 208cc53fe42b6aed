"""The device without a GPU: three stages with a thread each, and slots that batches pass through.

A slot is taken when a batch starts, handed from the decode stage to the model stage, and free again
when the model's results have left it; post-processing works on those results and does not hold the
slot. So while one batch infers, the next is decoded into the other slot. On a GPU:
`pipeline/slots_cuda.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from pipeline.batch_work import Work, decode_batch, finished, take_errors
from pipeline.guard import Guard, Unguarded
from pipeline.isolate import Piece, isolate
from pipeline.item import Batch
from pipeline.journal import Stage
from pipeline.letterbox import PAD_VALUE
from pipeline.native_calls import NativeCalls
from pipeline.ports import Clock, Lane
from pipeline.processor_time import ModelMeter, NoMeter
from pipeline.slot import HostSlot, SlotState
from pipeline.slot_device import SlotDevice
from schemas.result import Detection


@dataclass(slots=True, eq=False, kw_only=True)
class _Work(Work):
    """A batch with its slot, and the predictions of its good rows, in order: in one piece, or in
    those in which they were inferred."""

    slot: HostSlot
    raws: list[torch.Tensor] = field(default_factory=list[torch.Tensor])


class ThreadedDevice(SlotDevice[HostSlot, _Work]):
    """A device whose stages (decode, model, post) each have a thread of their own.

    Implements the `Device` port for tensors in main memory.

    Args:
        lanes: route name → decoder, model and post-processor. Each is used by one thread only.
        slots: batches between start and the end of their model stage, ≥ 1.
        meter: of the model's processor time, see `BatchDone.model_s`.
        guard: stands around every native call.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        *,
        slots: int = 2,
        meter: ModelMeter | None = None,
        guard: Guard | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._meter = meter or NoMeter()
        self._native = NativeCalls(guard or Unguarded(), cuda=False)
        super().__init__(lanes, [HostSlot(index) for index in range(slots)], clock)

    def _stages(self) -> Sequence[tuple[str, Callable[[_Work], None]]]:
        return [("decode", self._decode), ("model", self._infer), ("post", self._finish)]

    def _work(self, batch: Batch, slot: HostSlot) -> _Work:
        return _Work(batch, self._clock(), slot=slot)

    def _decode(self, work: _Work) -> None:
        began = self._clock()
        out = work.slot.frames(work.batch.bucket)
        decode_batch(work, self._lanes[work.batch.route].decoder, out, self._native)
        work.decode_s = self._clock() - began
        self._enter(work.slot, SlotState.DECODED)

    def _infer(self, work: _Work) -> None:
        self._enter(work.slot, SlotState.INFERRING)
        began, running = self._clock(), self._meter.begin()
        if work.rows:
            self._infer_rows(work)
        work.infer_s = self._clock() - began
        work.model_s = running.seconds() if running else None
        self._enter(work.slot, SlotState.FREE)
        self._notify()

    def _infer_rows(self, work: _Work) -> None:
        model = self._lanes[work.batch.route].model
        frames = work.slot.frames(work.batch.bucket)

        def infer(start: int, stop: int) -> torch.Tensor:
            chosen = [work.batch.items[index] for index in work.rows[start:stop]]
            return self._native.run(Stage.INFER, chosen, lambda: model.infer(frames[start:stop]))

        def healthy() -> bool:
            blank = torch.full_like(frames[:1], PAD_VALUE)
            return self._native.works(Stage.INFER, lambda: model.infer(blank))

        pieces = isolate(len(work.rows), infer, healthy, self._native.pause)
        take_errors(work, pieces, Stage.INFER)
        # Not joined: where memory was short, there is none for the whole a second time.
        work.raws = [piece.value for piece in pieces if piece.value is not None]

    def _finish(self, work: _Work) -> None:
        began = self._clock()
        detections = self._detections(work)
        finished_at = self._clock()
        work.post_s = finished_at - began
        self._done.append(finished(work, detections, finished_at))
        self._notify()

    def _detections(self, work: _Work) -> dict[int, tuple[Detection, ...]]:
        """Index in the batch → detections, for every row that post-processing did not refuse."""
        pieces: list[Piece[list[tuple[Detection, ...]]]] = []
        start = 0
        for raw in work.raws:
            pieces += [
                replace(piece, start=start + piece.start, stop=start + piece.stop)
                for piece in self._post(work, raw, work.rows[start : start + len(raw)])
            ]
            start += len(raw)
        take_errors(work, pieces, Stage.POST)
        rows = [row for piece in pieces if piece.value is not None for row in piece.value]
        return dict(zip(work.rows, rows, strict=True))

    def _post(
        self, work: _Work, raw: torch.Tensor, indices: Sequence[int]
    ) -> list[Piece[list[tuple[Detection, ...]]]]:
        """Post-process the predictions of these of the batch's items, a row each."""
        postprocessor = self._lanes[work.batch.route].postprocessor
        items = [work.batch.items[index] for index in indices]
        geometries = [item.geometry for item in items]

        def post(start: int, stop: int) -> list[tuple[Detection, ...]]:
            return self._native.run(
                Stage.POST,
                items[start:stop],
                lambda: postprocessor.detections(raw[start:stop], geometries[start:stop]),
            )

        def healthy() -> bool:
            nothing = torch.zeros_like(raw[:1])
            return self._native.works(
                Stage.POST, lambda: postprocessor.detections(nothing, geometries[:1])
            )

        return isolate(len(items), post, healthy, self._native.pause)
