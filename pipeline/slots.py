"""Slots: the double buffer of a device, and the device that runs batches through it.

A slot owns the input tensor of one batch. It is taken when a batch starts, handed from the decode
stage to the model stage, and free again when the model's results have left it; post-processing
works on those results and does not hold the slot. So while one batch infers, the next is decoded
into the other slot.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import torch

from pipeline.bucket import Bucket
from pipeline.isolate import Piece, isolate
from pipeline.item import Batch, Outcome, StageTimes
from pipeline.letterbox import PAD_VALUE
from pipeline.ports import BatchDone, Clock, Lane
from schemas.errors import FatalError, PoisonError, Reason
from schemas.result import Detection

T = TypeVar("T")

log = logging.getLogger(__name__)


class SlotState(Enum):
    """FREE → DECODING → DECODED → INFERRING → FREE."""

    FREE = "free"
    DECODING = "decoding"
    DECODED = "decoded"
    INFERRING = "inferring"


_NEXT = {
    SlotState.FREE: SlotState.DECODING,
    SlotState.DECODING: SlotState.DECODED,
    SlotState.DECODED: SlotState.INFERRING,
    SlotState.INFERRING: SlotState.FREE,
}


class Slot:
    """One half of the double buffer: an input buffer that grows to the largest bucket and stays.

    The state is changed under the device's lock; the buffer belongs to the stage that has the slot.
    """

    def __init__(self, index: int, torch_device: torch.device) -> None:
        self.index = index
        self.state = SlotState.FREE
        self._buffer = torch.empty(0, dtype=torch.uint8, device=torch_device)

    def enter(self, state: SlotState) -> None:
        """The one legal next state, or RuntimeError."""
        if _NEXT[self.state] is not state:
            raise RuntimeError(f"slot {self.index}: {self.state.value} → {state.value} is illegal")
        self.state = state

    def frames(self, bucket: Bucket) -> torch.Tensor:
        """uint8 (bucket.max_batch, height, width, 3), a view of the slot's buffer."""
        shape = (bucket.max_batch, bucket.height, bucket.width, 3)
        size = bucket.max_batch * bucket.height * bucket.width * 3
        if self._buffer.numel() < size:
            self._buffer = torch.empty(size, dtype=torch.uint8, device=self._buffer.device)
        return self._buffer[:size].view(shape)


@dataclass(slots=True, eq=False)
class _Work:
    """A batch on its way through the stages. Only the stage that holds it writes to it."""

    batch: Batch
    slot: Slot
    started_at: float
    decode_s: float = 0.0
    infer_s: float = 0.0
    errors: list[PoisonError | None] = field(default_factory=list[PoisonError | None])
    rows: list[int] = field(default_factory=list[int])
    """Indices of `batch.items` that were decoded, in order."""
    raw: torch.Tensor | None = None
    """Predictions of `rows`, in order."""


_Stage = Callable[[_Work], None]


class ThreadedDevice:
    """A device whose stages (decode, model, post) each have a thread of their own.

    Implements the `Device` port for CPU tensors and for CUDA tensors on the default CUDA stream.

    Args:
        lanes: route name → decoder, model and post-processor. Each is used by one thread only.
        slots: batches between start and the end of their model stage, ≥ 1.
        torch_device: where the slots' input tensors live.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        *,
        slots: int = 2,
        torch_device: str = "cpu",
        clock: Clock = time.monotonic,
    ) -> None:
        self._lanes = lanes
        self._clock = clock
        self._lock = threading.Lock()
        self._slots = [Slot(index, torch.device(torch_device)) for index in range(slots)]
        self._done: deque[BatchDone] = deque()
        self._failure: FatalError | None = None
        self._notify: Callable[[], None] = lambda: None
        # No queue can hold more batches than there are slots, post excepted: there the engine's
        # credits bound them.
        self._decoding: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._inferring: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._finishing: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = [
            self._stage("decode", self._decoding, self._decode, self._inferring),
            self._stage("model", self._inferring, self._infer, self._finishing),
            self._stage("post", self._finishing, self._finish, None),
        ]

    @property
    def free_slots(self) -> int:
        with self._lock:
            return sum(slot.state is SlotState.FREE for slot in self._slots)

    @property
    def compute_idle(self) -> bool:
        with self._lock:
            return all(slot.state is SlotState.FREE for slot in self._slots)

    @property
    def failure(self) -> FatalError | None:
        return self._failure

    def listen(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def start(self, batch: Batch) -> None:
        with self._lock:
            slot = next((s for s in self._slots if s.state is SlotState.FREE), None)
            if slot is None:
                raise RuntimeError("no free slot")
            slot.enter(SlotState.DECODING)
        self._decoding.put(_Work(batch, slot, self._clock()))

    def collect(self) -> list[BatchDone]:
        done: list[BatchDone] = []
        while self._done:
            done.append(self._done.popleft())
        return done

    def close(self) -> None:
        """Each stage ends after the work before it."""
        self._decoding.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads after `close`, then close the decoders. True when all ended."""
        deadline = self._clock() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - self._clock()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        for lane in self._lanes.values():
            lane.decoder.close()
        return True

    def _stage(
        self,
        name: str,
        inbox: queue.SimpleQueue[_Work | None],
        work_on: _Stage,
        outbox: queue.SimpleQueue[_Work | None] | None,
    ) -> threading.Thread:
        def run() -> None:
            try:
                while (work := inbox.get()) is not None:
                    work_on(work)
                    if outbox is not None:
                        outbox.put(work)
            except FatalError as error:
                self._fail(error)
            except Exception as error:
                log.exception("the %s stage failed", name)
                self._fail(FatalError(f"{name}: {type(error).__name__}: {error}"))
            finally:
                if outbox is not None:
                    outbox.put(None)  # the stages behind end too

        thread = threading.Thread(target=run, name=f"device-{name}", daemon=True)
        thread.start()
        return thread

    def _fail(self, error: FatalError) -> None:
        self._failure = error
        self._notify()

    def _decode(self, work: _Work) -> None:
        batch = work.batch
        out = work.slot.frames(batch.bucket)
        began = self._clock()
        work.errors = self._lanes[batch.route].decoder.decode(batch.items, out)
        work.decode_s = self._clock() - began
        work.rows = [index for index, error in enumerate(work.errors) if error is None]
        if work.rows and len(work.rows) < len(batch.items):
            # Close the gaps that undecodable pictures left, so that the model sees good rows only.
            out[: len(work.rows)] = out[work.rows]
        with self._lock:
            work.slot.enter(SlotState.DECODED)

    def _infer(self, work: _Work) -> None:
        with self._lock:
            work.slot.enter(SlotState.INFERRING)
        began = self._clock()
        if work.rows:
            self._infer_rows(work)
        work.infer_s = self._clock() - began
        with self._lock:
            work.slot.enter(SlotState.FREE)
        self._notify()

    def _infer_rows(self, work: _Work) -> None:
        model = self._lanes[work.batch.route].model
        frames = work.slot.frames(work.batch.bucket)

        def infer(start: int, stop: int) -> torch.Tensor:
            raw = model.infer(frames[start:stop])
            if raw.is_cuda:
                torch.cuda.current_stream(raw.device).synchronize()
            return raw

        def healthy() -> bool:
            return _works(lambda: model.infer(torch.full_like(frames[:1], PAD_VALUE)))

        pieces = isolate(len(work.rows), infer, healthy)
        self._take_errors(work, pieces, stage="infer")
        good = [piece.value for piece in pieces if piece.value is not None]
        work.raw = good[0] if len(good) == 1 else torch.cat(good) if good else None

    def _finish(self, work: _Work) -> None:
        batch = work.batch
        began = self._clock()
        detections = self._detections(work)
        finished_at = self._clock()
        times = StageTimes(
            started_at=work.started_at,
            finished_at=finished_at,
            decode_s=work.decode_s,
            infer_s=work.infer_s,
            post_s=finished_at - began,
        )
        outcomes = tuple(
            Outcome(
                item,
                detections=detections.get(index, ()),
                error=work.errors[index],
                batch=batch,
                index=index,
                times=times,
            )
            for index, item in enumerate(batch.items)
        )
        self._done.append(BatchDone(batch, outcomes, times))
        self._notify()

    def _detections(self, work: _Work) -> dict[int, tuple[Detection, ...]]:
        """Index in the batch → detections, for every row that post-processing did not refuse."""
        raw = work.raw
        if raw is None:
            return {}
        postprocessor = self._lanes[work.batch.route].postprocessor
        geometries = [work.batch.items[index].geometry for index in work.rows]

        def post(start: int, stop: int) -> list[tuple[Detection, ...]]:
            return postprocessor.detections(raw[start:stop], geometries[start:stop])

        def healthy() -> bool:
            return _works(
                lambda: postprocessor.detections(torch.zeros_like(raw[:1]), geometries[:1])
            )

        pieces = isolate(len(work.rows), post, healthy)
        self._take_errors(work, pieces, stage="post")
        rows = [row for piece in pieces if piece.value is not None for row in piece.value]
        return dict(zip(work.rows, rows, strict=True))

    @staticmethod
    def _take_errors(work: _Work, pieces: Sequence[Piece[T]], *, stage: str) -> None:
        """Turn the culprits among `work.rows` into errors and keep the others."""
        kept: list[int] = []
        for piece in pieces:
            indices = work.rows[piece.start : piece.stop]
            if piece.error is None:
                kept.extend(indices)
            else:
                work.errors[indices[0]] = _traced(piece.error, stage)
        work.rows = kept


def _works(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception:
        log.exception("a device stage fails on harmless input")
        return False
    return True


def _traced(error: Exception, stage: str) -> PoisonError:
    """The dead letter of the one frame that made its batch fail."""
    if isinstance(error, PoisonError):
        return error
    detail = f"{type(error).__name__}: {error}"
    return PoisonError(Reason.INFERENCE_FAILED, detail, stage=stage)
