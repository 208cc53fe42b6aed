"""The device: three stages with a thread each, and slots that batches pass through them in.

A slot is taken when a batch starts, handed from the decode stage to the model stage, and free again
when the model's results have left it; post-processing works on those results and does not hold the
slot. So while one batch infers, the next is decoded into the other slot.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from pipeline.guard import Guard, Unguarded
from pipeline.isolate import Piece, isolate, most_that_fit
from pipeline.item import Batch, Outcome, StageTimes
from pipeline.journal import Stage
from pipeline.letterbox import PAD_VALUE
from pipeline.native_calls import NativeCalls
from pipeline.ports import BatchDone, Clock, Lane
from pipeline.slot import Slot, SlotState
from pipeline.witness import harmless
from schemas.errors import FatalError, PoisonError, Reason, TransientError
from schemas.result import Detection

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Work:
    """A batch on its way through the stages. Only the stage that holds it writes to it."""

    batch: Batch
    slot: Slot
    started_at: float
    decode_s: float = 0.0
    infer_s: float = 0.0
    errors: list[PoisonError | None] = field(default_factory=list[PoisonError | None])
    attempts: list[int] = field(default_factory=list[int])
    """Per item of the batch: how often it was run."""
    fits: int | None = None
    """See `BatchDone.fits`."""
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
        guard: stands around every native call.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        lanes: Mapping[str, Lane],
        *,
        slots: int = 2,
        torch_device: str = "cpu",
        guard: Guard | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._lanes = lanes
        self._native = NativeCalls(guard or Unguarded(), cuda=torch_device.startswith("cuda"))
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
                self._fail(FatalError(f"the {name} stage: {error}"))
            except Exception as error:
                log.exception("the %s stage failed", name)
                self._fail(FatalError(f"the {name} stage: {type(error).__name__}: {error}"))
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
        self._decode_items(work, out)
        work.decode_s = self._clock() - began
        work.rows = [index for index, error in enumerate(work.errors) if error is None]
        if work.rows and len(work.rows) < len(batch.items):
            # Close the gaps that undecodable pictures left, so that the model sees good rows only.
            out[: len(work.rows)] = out[work.rows]
        with self._lock:
            work.slot.enter(SlotState.DECODED)

    def _decode_items(self, work: _Work, out: torch.Tensor) -> None:
        items, decoder = work.batch.items, self._lanes[work.batch.route].decoder

        def decode(start: int, stop: int) -> list[PoisonError | None]:
            chosen = items[start:stop]
            return self._native.run(
                Stage.DECODE, chosen, lambda: decoder.decode(chosen, out[start:stop])
            )

        def healthy() -> bool:
            witness = [harmless(items[0])]
            row = torch.empty_like(out[:1])
            return self._native.works(Stage.DECODE, lambda: decoder.decode(witness, row))

        pieces = isolate(len(items), decode, healthy, self._native.pause)
        for piece in pieces:
            work.attempts += [piece.attempts] * (piece.stop - piece.start)
            if piece.error is not None:
                work.errors.append(_traced(piece.error, Stage.DECODE, Reason.INTERNAL_ERROR))
            else:
                work.errors += piece.value or []
        work.fits = most_that_fit(pieces)

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

        def forward(rows: torch.Tensor) -> torch.Tensor:
            raw = model.infer(rows)
            if raw.is_cuda:
                torch.cuda.current_stream(raw.device).synchronize()
            return raw

        def infer(start: int, stop: int) -> torch.Tensor:
            chosen = [work.batch.items[index] for index in work.rows[start:stop]]
            return self._native.run(Stage.INFER, chosen, lambda: forward(frames[start:stop]))

        def healthy() -> bool:
            blank = torch.full_like(frames[:1], PAD_VALUE)
            return self._native.works(Stage.INFER, lambda: forward(blank))

        pieces = isolate(len(work.rows), infer, healthy, self._native.pause)
        self._take_errors(work, pieces, Stage.INFER)
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
                attempts=work.attempts[index],
            )
            for index, item in enumerate(batch.items)
        )
        self._done.append(BatchDone(batch, outcomes, times, work.fits))
        self._notify()

    def _detections(self, work: _Work) -> dict[int, tuple[Detection, ...]]:
        """Index in the batch → detections, for every row that post-processing did not refuse."""
        raw = work.raw
        if raw is None:
            return {}
        postprocessor = self._lanes[work.batch.route].postprocessor
        geometries = [work.batch.items[index].geometry for index in work.rows]

        def post(start: int, stop: int) -> list[tuple[Detection, ...]]:
            chosen = [work.batch.items[index] for index in work.rows[start:stop]]
            return self._native.run(
                Stage.POST,
                chosen,
                lambda: postprocessor.detections(raw[start:stop], geometries[start:stop]),
            )

        def healthy() -> bool:
            nothing = torch.zeros_like(raw[:1])
            return self._native.works(
                Stage.POST, lambda: postprocessor.detections(nothing, geometries[:1])
            )

        pieces = isolate(len(work.rows), post, healthy, self._native.pause)
        self._take_errors(work, pieces, Stage.POST)
        rows = [row for piece in pieces if piece.value is not None for row in piece.value]
        return dict(zip(work.rows, rows, strict=True))

    @staticmethod
    def _take_errors(work: _Work, pieces: list[Piece[T]], stage: Stage) -> None:
        """Turn the culprits among `work.rows` into errors and keep the others.

        Raises:
            FatalError: a row alone found no memory. All rows of a bucket need the same, so it is
                not the frame's doing.
        """
        kept: list[int] = []
        for piece in pieces:
            indices = work.rows[piece.start : piece.stop]
            for index in indices:
                work.attempts[index] += piece.attempts - 1
            if piece.error is None:
                kept.extend(indices)
            elif isinstance(piece.error, TransientError):
                raise FatalError(f"not even for one frame: {piece.error}")
            else:
                work.errors[indices[0]] = _traced(piece.error, stage, Reason.INFERENCE_FAILED)
        work.rows = kept
        fits = most_that_fit(pieces)
        if fits is not None:
            work.fits = fits if work.fits is None else min(fits, work.fits)


def _traced(error: Exception, stage: Stage, code: Reason) -> PoisonError:
    """The dead letter of the one frame that made its batch fail."""
    if isinstance(error, PoisonError):
        return error
    return PoisonError(code, f"{type(error).__name__}: {error}", stage=stage.value)
