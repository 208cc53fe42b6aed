"""What is counted of records on their way through delivery."""

from __future__ import annotations

from pipeline import metrics as m
from pipeline.item import Outcome
from pipeline.metrics import Metrics
from workers.anchor import Time
from workers.tickets import Answer, Ticket


class DeliveryCounts:
    """Tells the metrics. Belongs to the event loop's thread.

    Args:
        metrics: where it is told.
        time: monotonic and Unix time.
    """

    def __init__(self, metrics: Metrics, time: Time) -> None:
        self._metrics = metrics
        self._anchor = time.anchor

    def arrived(self, ticket: Ticket) -> None:
        """A record is here, whatever becomes of it."""
        record_bytes = ticket.nbytes - ticket.claimed_bytes
        self._metrics.add(m.RECEIVED_BYTES, record_bytes, ticket.route)

    def received(self, ticket: Ticket) -> None:
        """A record, or a frame of a segment, that will have an answer."""
        route = ticket.route
        self._metrics.add(m.RECEIVED, 1, route)
        frame = ticket.frame
        if frame is None:
            self._metrics.streams.receive(ticket.stream, None, ticket.received_at)
            return
        captured_at = self._anchor.to_monotonic(frame.captured_at_us)
        lag_s = max(ticket.received_at - captured_at, 0.0)
        self._metrics.streams.receive(
            ticket.stream, frame.captured_at_us, ticket.received_at, lag_s=lag_s
        )
        self._metrics.set(m.LAG_SECONDS, lag_s, route)
        if frame.key_mismatch:
            self._metrics.add(m.KEY_MISMATCHES, 1, route)
        if ticket.clock_skew:
            self._metrics.add(m.CLOCK_SKEWS, 1, route)

    def batch(self, outcome: Outcome) -> None:
        """A batch has left the engine; `outcome` is of one of its items, or of one that was in
        none (then nothing is counted)."""
        batch, times = outcome.batch, outcome.times
        if batch is None or times is None:
            return
        route, bucket, size = batch.route, batch.bucket, len(batch.items)
        self._metrics.add(m.BATCHES, 1, route, bucket.name, batch.closed_by.value)
        if outcome.attempts > 1:
            self._metrics.add(m.OUT_OF_MEMORY, 1, route, bucket.name)
        self._metrics.observe(m.BATCH_SIZE, size, route, bucket.name)
        self._metrics.observe(m.BATCH_FILL, batch.fill, route, bucket.name)
        for stage, seconds in (
            ("decode", times.decode_s),
            ("infer", times.infer_s),
            ("post", times.post_s),
        ):
            self._metrics.observe(m.STAGE_SECONDS, seconds, route, stage)
        for item in batch.items:
            waited_s = batch.closed_at - item.received_at
            self._metrics.observe(m.STAGE_SECONDS, waited_s, route, "queue")

    def late(self) -> None:
        """An outcome of an epoch that has ended."""
        self._metrics.add(m.LATE_COMPLETIONS, 1)

    def in_turn(self, ticket: Ticket, waited_s: float) -> None:
        """An answer waited so long for the earlier ones of its stream."""
        self._metrics.observe(m.STAGE_SECONDS, waited_s, ticket.route, "sequence")

    def acknowledged(self, answer: Answer, now: float) -> None:
        """The broker has an answer."""
        ticket = answer.ticket
        name = m.DEAD_LETTERED if answer.is_dead_letter else m.ANSWERED
        self._metrics.add(name, 1, ticket.route, answer.verdict.value)
        self._metrics.observe(m.STAGE_SECONDS, now - answer.ready_at, ticket.route, "produce")
        self._metrics.observe(m.STAGE_SECONDS, now - ticket.received_at, ticket.route, "e2e")
        self._metrics.streams.answer(ticket.stream)

    def abandoned(self, ticket: Ticket) -> None:
        """What came in is left to its partition's next owner."""
        self._metrics.add(m.ABANDONED, 1, ticket.route)
        self._metrics.streams.answer(ticket.stream)
