"""Outcomes → answers: the records that go out, encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.item import Batch, Outcome
from pipeline.ports import Clock
from schemas.codec import dead_letter_headers, write_result
from schemas.errors import PoisonError, Reason
from schemas.frame import FrameMessage
from schemas.result import BatchInfo, ModelInfo, ResultMessage, Source, Status, Times
from workers.anchor import Anchor
from workers.tickets import Answer, Ticket

LANE = "normal"
"""The one lane there is; results name it from the start."""

PASSED_HEADERS = frozenset({"traceparent", "tracestate"})
"""Headers of the input that results carry on (W3C Trace Context)."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a route's answers go, and which model made them."""

    output: str
    dead_letter: str
    model: ModelInfo


@dataclass(frozen=True, slots=True)
class _BatchInstants:
    """Of a batch, Unix microseconds."""

    batch: Batch
    closed_us: int
    started_us: int
    finished_us: int


class AnswerWriter:
    """Makes answers. Used by one thread.

    Args:
        destinations: by route name.
        worker: this worker's name, in dead letters.
        max_result_bytes: a larger result becomes a dead letter.
        anchor, clock: for the instants in results.
    """

    def __init__(
        self,
        destinations: Mapping[str, Destination],
        *,
        worker: str,
        max_result_bytes: int,
        anchor: Anchor,
        clock: Clock,
    ) -> None:
        self._destinations = destinations
        self._worker = worker
        self._max_result_bytes = max_result_bytes
        self._anchor = anchor
        self._clock = clock
        self._batch_us: _BatchInstants | None = None
        """Of the batch last seen: its frames come one after another, and share them."""

    def of_outcome(self, ticket: Ticket, outcome: Outcome) -> Answer:
        """The answer to an item that came back from the engine."""
        if outcome.error is not None:
            return self.dead_letter(ticket, outcome.error)
        item = outcome.item
        message = ResultMessage(
            stream_id=item.stream,
            seq=item.frame.seq,
            captured_at_us=item.frame.captured_at_us,
            status=outcome.status,
            width=item.header.width,
            height=item.header.height,
            detections=list(outcome.detections),
            model=self._destinations[item.route].model if outcome.status is Status.OK else None,
            batch=_batch_info(outcome),
            times=self._times(ticket, outcome),
            source=_source(ticket),
            meta=item.frame.meta,
            clock_skew=item.clock_skew,
            attempts=item.attempts + outcome.attempts - 1,
        )
        return self._result(ticket, message)

    def unseen(self, ticket: Ticket, frame: FrameMessage, status: Status) -> Answer:
        """The answer to a frame that is skipped or expired before anyone looked at the picture:
        its width and height are 0, for unknown."""
        message = ResultMessage(
            stream_id=frame.stream_id,
            seq=frame.seq,
            captured_at_us=frame.captured_at_us,
            status=status,
            width=0,
            height=0,
            times=self._times(ticket, None),
            source=_source(ticket),
            meta=frame.meta,
            clock_skew=ticket.clock_skew,
            attempts=ticket.attempts,
        )
        return self._result(ticket, message)

    def dead_letter(self, ticket: Ticket, error: PoisonError) -> Answer:
        """The record as it came, with headers that say why. A replayed record carries the number
        of earlier attempts; this one is added."""
        record, now = ticket.record, self._clock()
        headers = dead_letter_headers(
            error,
            record,
            worker=self._worker,
            at_us=self._anchor.to_unix_us(now),
            attempts=ticket.attempts,
            more={} if ticket.part is None else ticket.part.mark.headers(),
        )
        return Answer(
            ticket=ticket,
            topic=self._destinations[ticket.route].dead_letter,
            key=record.key,
            value=record.value,
            headers=tuple(headers),
            verdict=error.code,
            ready_at=now,
        )

    def _result(self, ticket: Ticket, message: ResultMessage) -> Answer:
        value = write_result(message)
        if len(value) > self._max_result_bytes:
            return self.dead_letter(ticket, self._too_large(len(value)))
        record = ticket.record
        return Answer(
            ticket=ticket,
            topic=self._destinations[ticket.route].output,
            key=record.key or message.stream_id.encode(),
            value=value,
            headers=_passed(record.headers),
            verdict=message.status,
            ready_at=self._clock(),
        )

    def _too_large(self, nbytes: int) -> PoisonError:
        limit = self._max_result_bytes
        detail = f"the result has {nbytes} bytes, limits.max_result_bytes is {limit}"
        return PoisonError(Reason.RESULT_TOO_LARGE, detail, stage="result")

    def _times(self, ticket: Ticket, outcome: Outcome | None) -> Times:
        received_us = self._anchor.to_unix_us(ticket.received_at)
        if outcome is None or outcome.batch is None or outcome.times is None:
            return Times(
                received_us=received_us, batched_us=0, started_us=0, finished_us=0,
                decode_ms=0.0, infer_ms=0.0, post_ms=0.0,
            )  # fmt: skip
        batch, times = outcome.batch, outcome.times
        known = self._batch_us
        if known is None or known.batch is not batch:
            known = self._batch_us = _BatchInstants(
                batch,
                self._anchor.to_unix_us(batch.closed_at),
                self._anchor.to_unix_us(times.started_at),
                self._anchor.to_unix_us(times.finished_at),
            )
        return Times(
            received_us=received_us,
            batched_us=known.closed_us,
            started_us=known.started_us,
            finished_us=known.finished_us,
            decode_ms=times.decode_s * 1e3,
            infer_ms=times.infer_s * 1e3,
            post_ms=times.post_s * 1e3,
        )


def _passed(headers: tuple[tuple[str, bytes], ...]) -> tuple[tuple[str, bytes], ...]:
    if not headers:
        return headers
    return tuple(header for header in headers if header[0].lower() in PASSED_HEADERS)


def _batch_info(outcome: Outcome) -> BatchInfo | None:
    batch = outcome.batch
    if batch is None:
        return None
    return BatchInfo(
        bucket=batch.bucket.name,
        lane=LANE,
        size=len(batch.items),
        index=outcome.index,
        closed_by=batch.closed_by,
    )


def _source(ticket: Ticket) -> Source:
    record, part = ticket.record, ticket.part
    frames = 1
    if part is not None:
        frames = part.number + 1 if part.last else None
    return Source(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        frame=0 if part is None else part.number,
        frames=frames,
    )
