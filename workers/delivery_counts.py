"""What is counted of records on their way through delivery."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pipeline import metrics as m
from pipeline.item import Outcome
from pipeline.metrics import Metrics
from schemas.errors import Reason
from schemas.result import Status
from workers.tickets import Answer, Ticket


class DeliveryCounts:
    """Tells the metrics, of many records at a time: a call costs more than the counting. Belongs to
    the event loop's thread.

    Args:
        metrics: where it is told.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def arrived(self, tickets: Sequence[Ticket]) -> None:
        """Records of one route are here, whatever becomes of them."""
        nbytes = sum(ticket.nbytes - ticket.claimed_bytes for ticket in tickets)
        self._metrics.add(m.RECEIVED_BYTES, nbytes, tickets[0].route)

    def received(self, tickets: Sequence[Ticket]) -> None:
        """Records, or frames of a segment, of one route that will have an answer each."""
        if not tickets:
            return
        route, streams, lag_s = tickets[0].route, self._metrics.streams, None
        self._metrics.add(m.RECEIVED, len(tickets), route)
        for ticket in tickets:
            frame = ticket.frame
            if frame is None:
                streams.receive(ticket.stream, None, ticket.received_at)
                continue
            lag_s = ticket.lag_s
            streams.receive(frame.stream_id, frame.captured_at_us, ticket.received_at, lag_s=lag_s)
            if frame.key_mismatch:
                self._metrics.add(m.KEY_MISMATCHES, 1, route)
            if ticket.clock_skew:
                self._metrics.add(m.CLOCK_SKEWS, 1, route)
        if lag_s is not None:
            self._metrics.set(m.LAG_SECONDS, lag_s, route)

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
        waits = [batch.closed_at - item.received_at for item in batch.items]
        self._metrics.observe_all(m.STAGE_SECONDS, waits, route, "queue")

    def late(self) -> None:
        """An outcome of an epoch that has ended."""
        self._metrics.add(m.LATE_COMPLETIONS, 1)

    def in_turn(self, answers: Iterable[Answer], now: float) -> None:
        """Answers leave; each has waited for the earlier ones of its stream."""
        waits: defaultdict[str, list[float]] = defaultdict(list)
        for answer in answers:
            waits[answer.ticket.route].append(now - answer.ready_at)
        for route, seconds in waits.items():
            self._metrics.observe_all(m.STAGE_SECONDS, seconds, route, "sequence")

    def acknowledged(self, answers: Sequence[Answer], now: float) -> None:
        """The broker has them."""
        verdicts: defaultdict[tuple[str, Status | Reason], int] = defaultdict(int)
        produce: defaultdict[str, list[float]] = defaultdict(list)
        whole: defaultdict[str, list[float]] = defaultdict(list)
        streams: list[str] = []
        for answer in answers:
            ticket = answer.ticket
            route = ticket.route
            verdicts[route, answer.verdict] += 1
            produce[route].append(now - answer.ready_at)
            whole[route].append(now - ticket.received_at)
            streams.append(ticket.stream)
        self._metrics.streams.answer(*streams)
        for (route, verdict), count in verdicts.items():
            name = m.DEAD_LETTERED if isinstance(verdict, Reason) else m.ANSWERED
            self._metrics.add(name, count, route, verdict.value)
        for route, seconds in produce.items():
            self._metrics.observe_all(m.STAGE_SECONDS, seconds, route, "produce")
            self._metrics.observe_all(m.STAGE_SECONDS, whole[route], route, "e2e")

    def abandoned(self, ticket: Ticket) -> None:
        """What came in is left to its partition's next owner."""
        self._metrics.add(m.ABANDONED, 1, ticket.route)
        self._metrics.streams.answer(ticket.stream)
