"""A batch on its way through a device's stages, and what every device does with it alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from pipeline.isolate import Piece, isolate, most_that_fit
from pipeline.item import Batch, Outcome, StageTimes
from pipeline.journal import Stage
from pipeline.native_calls import NativeCalls
from pipeline.ports import BatchDone, Decoder
from pipeline.witness import harmless
from schemas.errors import FatalError, PoisonError, Reason, TransientError
from schemas.result import Detection

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Work:
    """A batch on its way through the stages. Only the stage that holds it writes to it.

    Attributes:
        batch: the plan.
        started_at: monotonic seconds.
        decode_s, infer_s, post_s: what the stages took, seconds.
        model_s: see `BatchDone.model_s`.
        errors: per item of the batch, once it is decoded.
        attempts: per item of the batch: how often it was run.
        fits: see `BatchDone.fits`.
        rows: indices of `batch.items` that are still good, in order.
    """

    batch: Batch
    started_at: float
    decode_s: float = 0.0
    infer_s: float = 0.0
    post_s: float = 0.0
    model_s: float | None = None
    errors: list[PoisonError | None] = field(default_factory=list[PoisonError | None])
    attempts: list[int] = field(default_factory=list[int])
    fits: int | None = None
    rows: list[int] = field(default_factory=list[int])


def decode_batch(work: Work, decoder: Decoder, out: torch.Tensor, native: NativeCalls) -> None:
    """Decode the batch into the first rows of `out`, good pictures only, in order.

    Args:
        out: uint8 (≥ n, height, width, 3) of the batch's bucket.

    Raises:
        FatalError: the decoder fails on a harmless picture too.
    """
    items = work.batch.items

    def decode(start: int, stop: int) -> list[PoisonError | None]:
        chosen = items[start:stop]
        return native.run(Stage.DECODE, chosen, lambda: decoder.decode(chosen, out[start:stop]))

    def healthy() -> bool:
        witness = [harmless(items[0])]
        row = torch.empty_like(out[:1])
        return native.works(Stage.DECODE, lambda: decoder.decode(witness, row))

    pieces = isolate(len(items), decode, healthy, native.pause)
    for piece in pieces:
        work.attempts += [piece.attempts] * (piece.stop - piece.start)
        if piece.error is not None:
            work.errors.append(traced(piece.error, Stage.DECODE, Reason.INTERNAL_ERROR))
        else:
            work.errors += piece.value or []
    work.fits = most_that_fit(pieces)
    work.rows = [index for index, error in enumerate(work.errors) if error is None]
    # Close the gaps that undecodable pictures left, so that the model sees good rows only. Row by
    # row and upwards: no row is written before it was read, and nothing is allocated.
    for row, index in enumerate(work.rows):
        if row != index:
            out[row].copy_(out[index])


def take_errors(work: Work, pieces: list[Piece[T]], stage: Stage) -> None:
    """Turn the culprits among `work.rows` into errors and keep the others.

    Raises:
        FatalError: a row alone found no memory. All rows of a bucket need the same, so it is not
            the frame's doing.
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
            work.errors[indices[0]] = traced(piece.error, stage, Reason.INFERENCE_FAILED)
    work.rows = kept
    fits = most_that_fit(pieces)
    if fits is not None:
        work.fits = fits if work.fits is None else min(fits, work.fits)


def traced(error: Exception, stage: Stage, code: Reason) -> PoisonError:
    """The dead letter of the one frame that made its batch fail."""
    if isinstance(error, PoisonError):
        return error
    return PoisonError(code, f"{type(error).__name__}: {error}", stage=stage.value)


def finished(
    work: Work, detections: Mapping[int, tuple[Detection, ...]], finished_at: float
) -> BatchDone:
    """The batch with one outcome per item.

    Args:
        detections: index in the batch → what was found there.
        finished_at: monotonic seconds.
    """
    times = StageTimes(
        started_at=work.started_at,
        finished_at=finished_at,
        decode_s=work.decode_s,
        infer_s=work.infer_s,
        post_s=work.post_s,
    )
    outcomes = tuple(
        Outcome(
            item,
            detections=detections.get(index, ()),
            error=work.errors[index],
            batch=work.batch,
            index=index,
            times=times,
            attempts=work.attempts[index],
        )
        for index, item in enumerate(work.batch.items)
    )
    return BatchDone(work.batch, outcomes, times, work.fits, work.model_s)
