"""Delivery: every record that came in is answered, in order, and only then committed.

A record has one answer; a segment of video has one per frame, and is settled with the last of them
(`workers/segment_delivery.py`).

The one place that joins ledger, sequencer and flow. All of it belongs to the event loop's thread;
the engine's outcomes are handed over to that thread before they get here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline import metrics as m
from pipeline.item import Coordinates, Item, Outcome
from pipeline.ledger import PartitionId
from pipeline.metrics import Metrics
from schemas.errors import PoisonError
from schemas.record import RawRecord
from workers.admission import Admission
from workers.anchor import Time
from workers.answers import AnswerWriter
from workers.delivery_counts import DeliveryCounts
from workers.desk import Books, Desk, Ends
from workers.logs import RecordLog
from workers.segment_delivery import SegmentDelivery
from workers.tickets import Admitted, Answer, Claimed, Segment, Settled, Ticket


class Delivery:
    """Follows each record from receipt to settlement.

    Attributes:
        segments: those among the records.
        progress: see `Desk`.
    """

    def __init__(
        self,
        books: Books,
        admission: Admission,
        writer: AnswerWriter,
        ends: Ends,
        metrics: Metrics,
        record_log: RecordLog,
        time: Time,
    ) -> None:
        self._ledger, self._sequencer, self._flow = books.ledger, books.sequencer, books.flow
        self._admission = admission
        self._writer = writer
        self._ends = ends
        self._clock = time.clock
        self._counts = DeliveryCounts(metrics)
        self._desk = Desk(books, ends, self._counts, record_log, time)
        self.segments = SegmentDelivery(self._desk, admission, self.take)
        self.progress = self._desk.progress
        metrics.follow(m.IN_FLIGHT, lambda: books.flow.items)
        metrics.follow(m.IN_FLIGHT_BYTES, lambda: books.flow.bytes)
        metrics.follow(m.CLAIMS_WAITING, lambda: ends.downloads.waiting)
        metrics.follow(m.SUSPECTS, lambda: admission.suspects.count)
        metrics.follow(m.SEQUENCER_HELD, lambda: books.sequencer.held)

    @property
    def in_flight(self) -> int:
        """Records, and frames of segments, that hold a credit."""
        return self._flow.items

    @property
    def last_progress_at(self) -> float:
        """See `Desk`."""
        return self._desk.last_progress_at

    @property
    def settled(self) -> int:
        """See `Desk`."""
        return self._desk.settled

    @property
    def full(self) -> frozenset[PartitionId]:
        """Partitions of which nothing more should be taken now: a stream holds its limit of early
        answers, too many claims wait to be fetched, or a segment is being read."""
        return self._sequencer.full | self._ends.downloads.full | self.segments.partitions

    def assign(self, partitions: Iterable[PartitionId]) -> None:
        """These partitions are this worker's from now on, each in a new epoch."""
        # A worker may have died with records of theirs inside: that is why they come here.
        self._admission.suspects.refresh()
        for partition in partitions:
            self._ledger.assign(partition)
        self.progress.set()

    def revoke(self, partitions: Iterable[PartitionId]) -> None:
        """These partitions are gone. What is unsettled of them is given up: its next owner
        receives it again. Frames inside the engine keep their credit until they leave it."""
        for partition in partitions:
            epoch = self._ledger.epoch(partition)
            if epoch is None:
                continue
            held = self._sequencer.drop(partition, epoch)
            self._ledger.drop(partition)
            unfetched = self._ends.downloads.abandon(partition, epoch)
            for ticket in self.segments.revoke(partition, unfetched):
                self.abandon(ticket)
            for answer in held:
                self.abandon(answer.ticket)
        self.progress.set()

    def take(self, partition: PartitionId, records: Sequence[RawRecord]) -> None:
        """Records of one partition, in the order received. Its epoch must be open."""
        if self._ledger.is_behind(Coordinates(*partition, records[0].offset)):
            # The topic was cut short or made anew: what it says now begins a new account.
            self.revoke([partition])
            self.assign([partition])
        epoch = self._ledger.epoch(partition)
        if epoch is None:
            raise ValueError(f"records of {partition}, which is not assigned")
        self._desk.receive()
        taken: list[Admitted | Claimed | Settled] = []
        being_read = self.segments.partitions
        for record in records:
            if partition in being_read:
                self.segments.hold_back(record)
                continue
            admitted = self._admission.admit(record, epoch)
            self._ledger.receive(admitted.ticket.coordinates, epoch)
            if isinstance(admitted, Segment):
                self._counts.arrived([admitted.ticket])
                self.segments.begin(admitted)
            else:
                taken.append(admitted)
        if taken:
            self._take_in(taken)

    def fetched(self, ticket: Ticket, got: memoryview | PoisonError) -> None:
        """What a record claims is here, or will not be."""
        if self.segments.fetched(ticket, got):
            return
        admitted = self._admission.admit_fetched(ticket, got)
        # A partition that was full may be no longer.
        self.progress.set()
        self._desk.go_on(admitted)

    def take_no_more(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """These partitions (None: all) are given back: what has not been looked at is their next
        owner's."""
        self.segments.take_no_more(partitions)

    def complete(self, outcomes: Sequence[Outcome]) -> None:
        """What the engine made of items: one batch, or a group that expired."""
        if outcomes:
            self._counts.batch(outcomes[0])
        answers: list[Answer] = []
        for outcome in outcomes:
            ticket = self._desk.leave(outcome.item)
            part = None if ticket is None else ticket.part
            if part is not None:
                self._flow.let_go(outcome.item.nbytes)
                # Under exactly once, nothing of a long segment settles before its end.
                self._desk.touch()
            elif outcome.item.solo and outcome.batch is not None:
                self._admission.suspects.acquit(outcome.item.coordinates)
            if ticket is not None and self._desk.is_open(ticket):
                answers.append(self._writer.of_outcome(ticket, outcome))
                continue
            self._counts.late()
            if part is not None:
                part.segment.parts.answer()
            if ticket is not None:
                self.abandon(ticket)
        self._desk.answer(answers)
        # Frames that were inferred make room for others of their segments.
        self.progress.set()

    def acknowledge(self, answers: Sequence[Answer]) -> None:
        """The broker has the answers: each settles its record, or its part of one."""
        now = self._clock()
        tickets = [answer.ticket for answer in answers]
        self._release(tickets)
        for ticket in tickets:
            if ticket.part is None:
                self._ledger.settle(ticket.coordinates, ticket.epoch)
        self._counts.acknowledged(answers, now)
        self._desk.settle(len(answers), now)

    def abandon(self, ticket: Ticket) -> None:
        """The epoch of the record, or of this part of it, ended before it was settled."""
        self._release([ticket])
        self._counts.abandoned(ticket)
        self._desk.settle(1, self._clock())

    def committed(self, partition: PartitionId, epoch: int, offset: int) -> None:
        """The group's offset of the partition is now `offset`, committed under `epoch`."""
        self._ledger.committed(partition, epoch, offset)
        self._admission.suspects.committed(partition, offset)

    async def wait_settled(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """Return once nothing of these partitions (None: of all) is unsettled."""
        chosen = None if partitions is None else list(partitions)
        while self._ledger.incomplete(chosen):
            self.progress.clear()
            await self.progress.wait()

    async def wait_read(self) -> None:
        """Return once no segment is being read and no claim is being fetched: from then on, the
        engine gets nothing more of what was taken."""
        while self._ends.downloads.waiting or self.segments.being_read:
            self.progress.clear()
            await self.progress.wait()

    def _take_in(self, taken: Sequence[Admitted | Claimed | Settled]) -> None:
        """Records of one partition have their credits and places, and go on."""
        tickets = [admitted.ticket for admitted in taken]
        self._counts.arrived(tickets)
        self._flow.take(*[ticket.nbytes for ticket in tickets])
        self._desk.expect(tickets)
        items: list[Item] = []
        answers: list[Answer] = []
        for admitted in taken:
            if isinstance(admitted, Admitted):
                items.append(self._desk.enter(admitted))
            elif isinstance(admitted, Claimed):
                self._ends.downloads.start(admitted.ticket)
            else:
                answers.append(admitted.answer)
        self._desk.answer(answers)
        if items:
            self._ends.submit(items)

    def _release(self, tickets: Sequence[Ticket]) -> None:
        """Their credits, and what they hold, come back."""
        self._flow.give(*[ticket.nbytes for ticket in tickets])
        for ticket in tickets:
            if ticket.part is not None:
                self.segments.settle_part(ticket.part.segment)
            elif ticket.claim is not None:
                self._ends.downloads.release(ticket)
