"""What the worker holds for each record in flight, and what it sends for it in the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct

from pipeline.item import Coordinates, Item
from pipeline.ledger import PartitionId
from pipeline.parts import Parts
from pipeline.segment import Sampling
from pipeline.sequencer import Place, StreamKey
from pipeline.suspect import Suspect
from schemas.dead_letter import FrameMark
from schemas.errors import Reason
from schemas.frame import Claim, FrameMessage
from schemas.record import RawRecord
from schemas.result import Status


class OrderUnit(Enum):
    """Within what answers keep the order of their records."""

    NONE = "none"
    STREAM = "stream"
    """Records that cannot be read belong to no stream, and wait for nobody."""
    PARTITION = "partition"
    """All of its records. What has left of a partition is then always its contiguous beginning,
    which is what a transaction may hold."""


WHOLE_PARTITION = ""
"""In place of a stream id, where the unit of order is the partition."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Which answer of a segment's record it is.

    Attributes:
        segment: the record, with the account of its answers.
        number: among the record's answers, from 0.
        last: none comes after it.
        is_frame: it answers a frame; else it is the dead letter of what could not be read.
    """

    segment: Segment
    number: int
    last: bool
    is_frame: bool = True

    @property
    def mark(self) -> FrameMark:
        """What a dead letter in this place says."""
        if not self.is_frame:
            return FrameMark(None, self.number)
        return FrameMark(self.number, self.number + 1 if self.last else None)


class Ticket(Struct, frozen=True, eq=False, gc=False):
    """One record in flight, or one frame of a segment's: from its receipt until its answer was
    acknowledged.

    What is asked for several times on the way is a field and not computed anew.

    Attributes:
        record: kept until then, because a dead letter carries it whole.
        partition, coordinates: of the record.
        epoch: the assignment under which it was received.
        route: name of its route.
        received_at: monotonic seconds.
        nbytes: its byte credit: the length of the record's value, and of what it claims. A
            segment's record holds it, its frames do not (0).
        frame: what it says, or None while (or because) it could not be read. A segment's frame is
            without its pixels here: they are the engine's alone.
        key: its place in the sequencer, or None when it has no order: its answer waits for the
            earlier ones of the same key.
        lag_s: age of the frame at the record's receipt by its capture time, seconds ≥ 0.
        clock_skew: it claims to be captured well after its receipt.
        attempts: how often it is tried with this one, ≥ 1.
        suspect: what is held of it, if it was inside when a worker died.
        claim: what is fetched for it.
        part: of a segment's answers, which one; None for a record with one answer.
    """

    record: RawRecord
    partition: PartitionId
    coordinates: Coordinates
    epoch: int
    route: str
    received_at: float
    nbytes: int
    frame: FrameMessage | None = None
    key: StreamKey | None = None
    lag_s: float = 0.0
    clock_skew: bool = False
    attempts: int = 1
    suspect: Suspect | None = None
    claim: Claim | None = None
    part: Part | None = None

    @property
    def claimed_bytes(self) -> int:
        """What a claim says there is to fetch; 0 for a record that carries its picture. A claim
        that is refused for its length costs nothing."""
        return 0 if self.claim is None else self.claim.length

    @property
    def place(self) -> Place:
        """Its place in the order of its partition."""
        return (self.record.offset, 0 if self.part is None else self.part.number)

    @property
    def stream(self) -> str:
        """Its stream for counting; an unreadable record counts for its partition."""
        if self.frame is None:
            return f"{self.record.topic}-{self.record.partition}"
        return self.frame.stream_id


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A segment's record in flight, until its last answer was acknowledged.

    Attributes:
        ticket: of the record.
        message: what it says, its data with it.
        sampling: which frames are answered.
        parts: the account of its answers. Mutable: of the event loop's thread.
    """

    ticket: Ticket
    message: FrameMessage
    sampling: Sampling
    parts: Parts = field(default_factory=Parts)


class Answer(Struct, frozen=True, eq=False, gc=False):
    """What is sent for one record: a result or a dead letter. `verdict` says which.

    Attributes:
        ready_at: when it was made, monotonic seconds.
    """

    ticket: Ticket
    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    verdict: Status | Reason
    ready_at: float

    @property
    def closes(self) -> bool:
        """Whether its record has no answer after it."""
        return self.ticket.part is None or self.ticket.part.last

    @property
    def is_dead_letter(self) -> bool:
        return isinstance(self.verdict, Reason)

    @property
    def nbytes(self) -> int:
        """About what it takes in a produce request."""
        nbytes = len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            nbytes += len(name) + len(value)
        return nbytes


class Admitted(Struct, frozen=True, eq=False, gc=False):
    """A record that goes to the engine."""

    ticket: Ticket
    item: Item


class Claimed(Struct, frozen=True, eq=False, gc=False):
    """A record whose picture (`ticket.claim`) is to be fetched before it can go on."""

    ticket: Ticket


class Settled(Struct, frozen=True, eq=False, gc=False):
    """A record that has its answer without the engine."""

    ticket: Ticket
    answer: Answer
