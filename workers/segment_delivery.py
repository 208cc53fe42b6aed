"""Segments in delivery: records with one answer per frame, and what waits behind them.

While a segment is being read, records of its partition that are here already wait behind it, and no
more are polled: its frames take their places first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, KeysView, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from pipeline.ledger import PartitionId
from pipeline.segment import SegmentFrame
from schemas.errors import PoisonError
from schemas.record import RawRecord
from workers.admission import Admission
from workers.desk import Desk
from workers.tickets import Segment, Settled, Ticket


@dataclass(slots=True, eq=False)
class _Behind:
    """A partition whose segment is being read, and the records that wait behind it."""

    segment: Segment
    records: deque[RawRecord] = field(default_factory=deque[RawRecord])


class SegmentDelivery:
    """Follows each segment from receipt until its last answer was acknowledged.

    Args:
        desk: shared with the records that are no segments.
        admission: makes frames of segments into items.
        take: records that waited behind a segment come in now.
    """

    def __init__(
        self,
        desk: Desk,
        admission: Admission,
        take: Callable[[PartitionId, Sequence[RawRecord]], None],
    ) -> None:
        self._desk = desk
        self._flow = desk.flow
        self._admission = admission
        self._take = take
        self._behind: dict[PartitionId, _Behind] = {}
        self._unsettled: dict[Segment, None] = {}
        self._asked: dict[Segment, None] = {}
        """Segments that were read, or are, and are not settled; by when each asked first."""
        self.progress = desk.progress

    def __len__(self) -> int:
        """Segments that are not settled."""
        return len(self._unsettled)

    @property
    def partitions(self) -> KeysView[PartitionId]:
        """Partitions of which a segment is being read, or is fetched to be."""
        return self._behind.keys()

    @property
    def being_read(self) -> bool:
        """Whether any segment has frames to come."""
        return any(not segment.parts.ended for segment in self._unsettled)

    def is_open(self, segment: Segment) -> bool:
        """Whether the segment's epoch is still open, so that reading it is this worker's job."""
        return self._desk.is_open(segment.ticket)

    def begin(self, segment: Segment) -> None:
        """A segment came in. It is read at once, or once what it claims is here."""
        ticket = segment.ticket
        self._flow.hold(ticket.nbytes)
        self._unsettled[segment] = None
        self._behind[ticket.partition] = _Behind(segment)
        if ticket.claim is None:
            self._desk.ends.read(segment)
        else:
            self._desk.ends.downloads.start(ticket)

    def hold_back(self, record: RawRecord) -> None:
        """A record of one of the `partitions` waits. It is here: its bytes count, though it takes
        no place yet."""
        self._flow.hold(len(record.value or b""))
        self._behind[record.topic, record.partition].records.append(record)

    def take_no_more(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """Forget what waits behind segments of these partitions (None: of all): they are given
        back, and it is their next owner's. The segments themselves are read on."""
        for partition in list(self._behind) if partitions is None else partitions:
            self._forget_behind(partition)

    def revoke(self, partition: PartitionId, unfetched: Iterable[Ticket]) -> list[Ticket]:
        """The partition is gone, and its epoch closed: nothing waits any more. Returns those of the
        tickets, whose claims are not fetched any more, that are no segments'."""
        self._forget_behind(partition)
        behind = self._behind.pop(partition, None)
        others: list[Ticket] = []
        for ticket in unfetched:
            if behind is not None and behind.segment.ticket is ticket:
                # It was never read: there is no part of it to be given up.
                behind.segment.parts.end()
                self._settle(behind.segment)
            else:
                others.append(ticket)
        return others

    def fetched(self, ticket: Ticket, got: memoryview | PoisonError) -> bool:
        """What a record claims is here, or will not be. False when it is no segment."""
        behind = self._behind.get(ticket.partition)
        if behind is None or behind.segment.ticket is not ticket:
            return False
        segment = behind.segment
        if isinstance(got, PoisonError):
            self.break_off(segment, got, None)
            self.end(segment)
            return True
        whole = replace(segment, message=structs.replace(segment.message, data=got))
        behind.segment = whole
        del self._unsettled[segment]
        self._unsettled[whole] = None
        self._desk.ends.read(whole)
        return True

    def may_decode(self, segment: Segment, nbytes: int) -> bool:
        """Take the credits for a segment's next frame, if they are to be had.

        The first to ask may have one frame inside whatever the credits say: they may all be held
        by what waits for it. Not the first to come: one that is still fetched, or waits until it
        may be opened, has nothing to ask for, and may be waiting for the others to end.
        """
        if segment in self._unsettled:
            self._asked[segment] = None
        first = next(iter(self._asked), None) is segment and not segment.parts.inside
        if not (first or self._flow.fits(nbytes)):
            return False
        self._desk.receive()
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
        self._desk.touch()
        admitted = self._admission.admit_frame(segment, decoded)
        self._desk.expect([admitted.ticket])
        if isinstance(admitted, Settled):
            self._flow.let_go(nbytes)
        self._desk.go_on(admitted)

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
        self._desk.expect([settled.ticket])
        self._desk.answer([settled.answer])

    def end(self, segment: Segment) -> None:
        """Nothing more is read of a segment: its last part is here, or its epoch has ended. What
        waits behind it is taken in. Safe to call twice."""
        if not segment.parts.ended and self.is_open(segment):
            # The worker ends in the middle of it: it stays unsettled.
            return
        segment.parts.end()
        partition = segment.ticket.partition
        self._settle(segment)
        behind = self._behind.get(partition)
        if behind is not None and behind.segment is segment:
            records = list(behind.records)
            self._forget_behind(partition)
            del self._behind[partition]
            if records:
                self._take(partition, records)
        self.progress.set()

    def settle_part(self, segment: Segment) -> None:
        """One of its answers was acknowledged, or given up. The record is settled with the last."""
        segment.parts.settle()
        self._settle(segment)

    def _settle(self, segment: Segment) -> None:
        ticket, parts, is_open = segment.ticket, segment.parts, self.is_open(segment)
        if is_open and parts.ended and not parts.inside and ticket.suspect is not None:
            self._admission.suspects.acquit(ticket.coordinates)
        if parts.done and segment in self._unsettled:
            del self._unsettled[segment]
            self._asked.pop(segment, None)
            self._flow.let_go(ticket.nbytes)
            self._desk.ends.downloads.release(ticket)
            if is_open:
                self._desk.ledger.settle(ticket.coordinates, ticket.epoch)

    def _forget_behind(self, partition: PartitionId) -> None:
        behind = self._behind.get(partition)
        if behind is not None:
            self._flow.let_go(sum(len(record.value or b"") for record in behind.records))
            behind.records.clear()
