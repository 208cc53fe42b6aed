"""Delivery: every record that came in is answered, in order, and only then committed.

A record has one answer; a segment of video has one per frame, and is settled with the last of them.
While a segment is being read, records of its partition that are here already wait behind it, and no
more are polled: its frames take their places first.

The one place that joins ledger, sequencer and flow. All of it belongs to the event loop's thread;
the engine's outcomes are handed over to that thread before they get here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from pipeline import metrics as m
from pipeline.flow import Flow
from pipeline.item import Coordinates, Item, Outcome
from pipeline.ledger import Ledger, PartitionId
from pipeline.metrics import Metrics
from pipeline.segment import SegmentFrame
from pipeline.sequencer import Sequencer
from schemas.errors import PoisonError
from schemas.record import RawRecord
from workers.admission import Admission
from workers.anchor import Time
from workers.answers import AnswerWriter
from workers.downloads import Downloads
from workers.logs import RecordLog
from workers.tickets import Admitted, Answer, Claimed, Segment, Ticket


@dataclass(frozen=True, slots=True)
class Books:
    """The three pure accounts of one worker."""

    ledger: Ledger
    sequencer: Sequencer[Answer]
    flow: Flow


@dataclass(frozen=True, slots=True)
class Ends:
    """Where delivery hands things on. Neither may block; credits bound them both.

    Attributes:
        submit: items, to the engine.
        put: an answer whose turn it is, to the sink.
        downloads: fetch what records claim, and tell `Delivery.fetched`.
        read: a segment, to be decoded into frames.
    """

    submit: Callable[[Sequence[Item]], None]
    put: Callable[[Answer], None]
    downloads: Downloads
    read: Callable[[Segment], None]


@dataclass(slots=True, eq=False)
class _Behind:
    """A partition whose segment is being read, and the records that wait behind it."""

    segment: Segment
    records: deque[RawRecord] = field(default_factory=deque[RawRecord])


class Delivery:
    """Follows each record from receipt to settlement.

    Attributes:
        progress: set whenever something settled or a partition came or went. Waiters clear it,
            look again, and wait.
        last_progress_at: monotonic seconds of the last settlement, or of the first receipt after
            nothing was in flight.
        settled: records settled since the start.
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
        self._metrics = metrics
        self._record_log = record_log
        self._time = time
        self._tickets: dict[int, Ticket] = {}
        self._behind: dict[PartitionId, _Behind] = {}
        self._segments: dict[Segment, None] = {}
        self._asked: dict[Segment, None] = {}
        """Segments that were read, or are, and are not settled; by when each asked first."""
        metrics.follow(m.IN_FLIGHT, lambda: books.flow.items)
        metrics.follow(m.IN_FLIGHT_BYTES, lambda: books.flow.bytes)
        metrics.follow(m.CLAIMS_WAITING, lambda: ends.downloads.waiting)
        metrics.follow(m.SUSPECTS, lambda: admission.suspects.count)
        metrics.follow(m.SEQUENCER_HELD, lambda: books.sequencer.held)
        self.progress = asyncio.Event()
        self.last_progress_at = time.clock()
        self.settled = 0

    @property
    def in_flight(self) -> int:
        """Records, and frames of segments, that hold a credit."""
        return self._flow.items

    @property
    def segments(self) -> int:
        """Segments that are not settled."""
        return len(self._segments)

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
            self._forget_behind(partition)
            behind = self._behind.pop(partition, None)
            for ticket in self._ends.downloads.abandon(partition, epoch):
                if behind is not None and behind.segment.ticket is ticket:
                    # It was never read: there is no part of it to be given up.
                    behind.segment.parts.end()
                    self._settle_segment(behind.segment)
                else:
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
        if not self._flow.items:
            self.last_progress_at = self._time.clock()
        items: list[Item] = []
        for record in records:
            behind = self._behind.get(partition)
            if behind is not None:
                # They are here: their bytes count, though they take no place yet.
                self._flow.hold(len(record.value or b""))
                behind.records.append(record)
            elif (item := self._take_one(record, epoch)) is not None:
                items.append(item)
        if items:
            self._ends.submit(items)

    @property
    def full(self) -> frozenset[PartitionId]:
        """Partitions of which nothing more should be taken now: a stream holds its limit of early
        answers, too many claims wait to be fetched, or a segment is being read."""
        return self._sequencer.full | self._ends.downloads.full | self._behind.keys()

    def fetched(self, ticket: Ticket, got: memoryview | PoisonError) -> None:
        """What a record claims is here, or will not be."""
        behind = self._behind.get(ticket.partition)
        if behind is not None and behind.segment.ticket is ticket:
            self._fetched_segment(behind, got)
            return
        admitted = self._admission.admit_fetched(ticket, got)
        # A partition that was full may be no longer.
        self.progress.set()
        if isinstance(admitted, Admitted):
            self._tickets[admitted.item.attempt_id] = admitted.ticket
            self._ends.submit([admitted.item])
        else:
            self._answer(admitted.ticket, admitted.answer)

    def _fetched_segment(self, behind: _Behind, got: memoryview | PoisonError) -> None:
        segment = behind.segment
        if isinstance(got, PoisonError):
            self.break_off(segment, got, None)
            self.end_segment(segment)
            return
        whole = replace(segment, message=structs.replace(segment.message, data=got))
        behind.segment = whole
        del self._segments[segment]
        self._segments[whole] = None
        self._ends.read(whole)

    def take_no_more(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """Forget what waits behind segments of these partitions (None: of all): they are given
        back, and it is their next owner's. The segments themselves are read on."""
        for partition in list(self._behind) if partitions is None else partitions:
            self._forget_behind(partition)

    def may_decode(self, segment: Segment, nbytes: int) -> bool:
        """Take the credits for a segment's next frame, if they are to be had.

        The first to ask may have one frame inside whatever the credits say: they may all be held
        by what waits for it. Not the first to come: one that is still fetched, or waits until it
        may be opened, has nothing to ask for, and may be waiting for the others to end.
        """
        if segment in self._segments:
            self._asked[segment] = None
        first = next(iter(self._asked), None) is segment and not segment.parts.inside
        if not (first or self._flow.fits(nbytes)):
            return False
        if not self._flow.items:
            self.last_progress_at = self._time.clock()
        self._flow.take_frame(nbytes)
        return True

    def take_frame(self, segment: Segment, decoded: SegmentFrame, credit: int) -> None:
        """A frame was decoded, for a credit of so many bytes."""
        if not self.is_open(segment):
            self._flow.give(credit)
            return
        nbytes = decoded.pixels.nbytes
        if nbytes != credit:
            self._flow.give(credit)
            self._flow.take_frame(nbytes)
        # Under exactly once nothing of a long segment settles before its end, and frames whose time
        # is up never reach the engine.
        self.last_progress_at = self._time.clock()
        admitted = self._admission.admit_frame(segment, decoded)
        self._expect(admitted.ticket)
        if isinstance(admitted, Admitted):
            self._tickets[admitted.item.attempt_id] = admitted.ticket
            self._ends.submit([admitted.item])
        else:
            self._flow.let_go(nbytes)
            self._answer(admitted.ticket, admitted.answer)

    def break_off(self, segment: Segment, error: PoisonError, credit: int | None) -> None:
        """A segment is damaged, or was refused: its good frames are here, and this is the answer to
        what is left. `credit` bytes were taken for a frame that does not come, or nothing was."""
        if credit is None:
            self._flow.take_frame(0)
        else:
            self._flow.let_go(credit)
        if not self.is_open(segment):
            self._flow.give(0)
            return
        settled = self._admission.refuse_rest(segment, error)
        self._expect(settled.ticket)
        self._answer(settled.ticket, settled.answer)

    def end_segment(self, segment: Segment) -> None:
        """Nothing more is read of a segment: its last part is here, or its epoch has ended. What
        waits behind it is taken in. Safe to call twice."""
        if not segment.parts.ended and self.is_open(segment):
            # The worker ends in the middle of it: it stays unsettled.
            return
        segment.parts.end()
        partition = segment.ticket.partition
        self._settle_segment(segment)
        behind = self._behind.get(partition)
        if behind is not None and behind.segment is segment:
            records = list(behind.records)
            self._forget_behind(partition)
            del self._behind[partition]
            if records:
                self.take(partition, records)
        self.progress.set()

    def complete(self, outcomes: Sequence[Outcome]) -> None:
        """What the engine made of items: one batch, or a group that expired."""
        if outcomes and (batch := outcomes[0].batch) is not None:
            self._count_batch(outcomes[0], len(batch.items))
        for outcome in outcomes:
            ticket = self._tickets.pop(outcome.item.attempt_id, None)
            if ticket is not None and ticket.part is not None:
                self._flow.let_go(outcome.item.nbytes)
                # Under exactly once, nothing of a long segment settles before its end.
                self.last_progress_at = self._time.clock()
            elif outcome.item.solo and outcome.batch is not None:
                self._admission.suspects.acquit(outcome.item.coordinates)
            if ticket is None or not self._ledger.is_open(ticket.partition, ticket.epoch):
                self._metrics.add(m.LATE_COMPLETIONS, 1)
                if ticket is not None:
                    if ticket.part is not None:
                        ticket.part.segment.parts.answer()
                    self.abandon(ticket)
                continue
            self._answer(ticket, self._writer.of_outcome(ticket, outcome))
        # Frames that were inferred make room for others of their segments.
        self.progress.set()

    def is_open(self, segment: Segment) -> bool:
        """Whether the segment's epoch is still open, so that reading it is this worker's job."""
        return self._ledger.is_open(segment.ticket.partition, segment.ticket.epoch)

    def is_live(self, answer: Answer) -> bool:
        """Whether the answer's epoch is still open, so that sending it is this worker's job."""
        return self._ledger.is_open(answer.ticket.partition, answer.ticket.epoch)

    def acknowledge(self, answer: Answer) -> None:
        """The broker has the answer: the record is settled, or this part of it."""
        ticket, now = answer.ticket, self._time.clock()
        self._flow.give(ticket.nbytes)
        if ticket.part is None:
            self._ends.downloads.release(ticket)
            self._ledger.settle(ticket.coordinates, ticket.epoch)
        else:
            ticket.part.segment.parts.settle()
            self._settle_segment(ticket.part.segment)
        if answer.is_dead_letter:
            self._metrics.add(m.DEAD_LETTERED, 1, ticket.route, answer.verdict.value)
        else:
            self._metrics.add(m.ANSWERED, 1, ticket.route, answer.verdict.value)
        self._metrics.observe(m.STAGE_SECONDS, now - answer.ready_at, ticket.route, "produce")
        self._metrics.observe(m.STAGE_SECONDS, now - ticket.received_at, ticket.route, "e2e")
        self._metrics.streams.answer(ticket.stream)
        self._progress(now)

    def abandon(self, ticket: Ticket) -> None:
        """The epoch of the record, or of this part of it, ended before it was settled."""
        self._flow.give(ticket.nbytes)
        if ticket.part is None:
            self._ends.downloads.release(ticket)
        else:
            ticket.part.segment.parts.settle()
            self._settle_segment(ticket.part.segment)
        self._metrics.add(m.ABANDONED, 1, ticket.route)
        self._metrics.streams.answer(ticket.stream)
        self._progress(self._time.clock())

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
        while self._ends.downloads.waiting or any(not s.parts.ended for s in self._segments):
            self.progress.clear()
            await self.progress.wait()

    def _take_one(self, record: RawRecord, epoch: int) -> Item | None:
        admitted = self._admission.admit(record, epoch)
        ticket = admitted.ticket
        self._ledger.receive(ticket.coordinates, epoch)
        record_bytes = ticket.nbytes - ticket.claimed_bytes
        self._metrics.add(m.RECEIVED_BYTES, record_bytes, ticket.route)
        if isinstance(admitted, Segment):
            self._flow.hold(ticket.nbytes)
            self._segments[admitted] = None
            self._behind[ticket.partition] = _Behind(admitted)
            if ticket.claim is None:
                self._ends.read(admitted)
            else:
                self._ends.downloads.start(ticket)
            return None
        self._flow.take(ticket.nbytes)
        self._expect(ticket)
        if isinstance(admitted, Admitted):
            self._tickets[admitted.item.attempt_id] = ticket
            return admitted.item
        if isinstance(admitted, Claimed):
            self._ends.downloads.start(ticket)
            return None
        self._answer(ticket, admitted.answer)
        return None

    def _forget_behind(self, partition: PartitionId) -> None:
        behind = self._behind.get(partition)
        if behind is not None:
            self._flow.let_go(sum(len(record.value or b"") for record in behind.records))
            behind.records.clear()

    def _expect(self, ticket: Ticket) -> None:
        """What came in has its place in the order."""
        self._count_received(ticket)
        if ticket.key is not None:
            self._sequencer.expect(ticket.key, ticket.place)

    def _settle_segment(self, segment: Segment) -> None:
        """The record is settled once all of its parts are."""
        ticket, parts, is_open = segment.ticket, segment.parts, self.is_open(segment)
        if is_open and parts.ended and not parts.inside and ticket.suspect is not None:
            self._admission.suspects.acquit(ticket.coordinates)
        if parts.done and segment in self._segments:
            del self._segments[segment]
            self._asked.pop(segment, None)
            self._flow.let_go(ticket.nbytes)
            self._ends.downloads.release(ticket)
            if is_open:
                self._ledger.settle(ticket.coordinates, ticket.epoch)

    def _answer(self, ticket: Ticket, answer: Answer) -> None:
        if ticket.part is not None:
            ticket.part.segment.parts.answer()
        if answer.is_dead_letter:
            at = answer.ticket.coordinates
            self._record_log.warn(
                "dead_letter",
                self._time.clock(),
                reason=answer.verdict.value,
                source=f"{at.topic}/{at.partition}/{at.offset}",
            )
        key = ticket.key
        if key is None:
            self._ends.put(answer)
            return
        for leaving in self._sequencer.complete(key, ticket.place, answer):
            waited_s = self._time.clock() - leaving.ready_at
            self._metrics.observe(m.STAGE_SECONDS, waited_s, ticket.route, "sequence")
            self._ends.put(leaving)

    def _progress(self, now: float) -> None:
        self.settled += 1
        self.last_progress_at = now
        self.progress.set()

    def _count_received(self, ticket: Ticket) -> None:
        route = ticket.route
        self._metrics.add(m.RECEIVED, 1, route)
        frame = ticket.frame
        if frame is None:
            self._metrics.streams.receive(ticket.stream, None, ticket.received_at)
            return
        captured_at = self._time.anchor.to_monotonic(frame.captured_at_us)
        lag_s = max(ticket.received_at - captured_at, 0.0)
        self._metrics.streams.receive(
            ticket.stream, frame.captured_at_us, ticket.received_at, lag_s=lag_s
        )
        self._metrics.set(m.LAG_SECONDS, lag_s, route)
        if frame.key_mismatch:
            self._metrics.add(m.KEY_MISMATCHES, 1, route)
        if ticket.clock_skew:
            self._metrics.add(m.CLOCK_SKEWS, 1, route)

    def _count_batch(self, outcome: Outcome, size: int) -> None:
        batch, times = outcome.batch, outcome.times
        if batch is None or times is None:
            return
        route, bucket = batch.route, batch.bucket
        self._metrics.add(m.BATCHES, 1, route, bucket.name, batch.closed_by.value)
        if outcome.attempts > 1:
            self._metrics.add(m.OUT_OF_MEMORY, 1, route, bucket.name)
        self._metrics.observe(m.BATCH_SIZE, size, route, bucket.name)
        self._metrics.observe(m.BATCH_FILL, size / bucket.max_batch, route, bucket.name)
        for stage, seconds in (
            ("decode", times.decode_s),
            ("infer", times.infer_s),
            ("post", times.post_s),
        ):
            self._metrics.observe(m.STAGE_SECONDS, seconds, route, stage)
        for item in batch.items:
            waited_s = batch.closed_at - item.received_at
            self._metrics.observe(m.STAGE_SECONDS, waited_s, route, "queue")
