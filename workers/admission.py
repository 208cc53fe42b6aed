"""Admission: what happens to a record between Kafka and the engine.

Read it, leave out what the route samples away, set its deadline, look at the picture's header and
choose a bucket. Each step may answer the record itself; then the engine never sees it. A record
that only claims its picture comes twice: before it is fetched and after. A segment of video is only
read here; each of its decoded frames takes the same steps later.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import structs

from pipeline.bucket import BucketTable
from pipeline.claim_rules import ClaimRules
from pipeline.item import Coordinates, Item
from pipeline.probe import ProbeLimits, probe
from pipeline.segment import Sampling, SegmentFrame
from pipeline.sequencer import StreamKey
from schemas.codec import read_frame
from schemas.dead_letter import attempts_before
from schemas.errors import PoisonError, Reason
from schemas.frame import SEGMENT_ENCODINGS, Claim, Encoding, FrameMessage
from schemas.record import RawRecord
from schemas.result import Status
from schemas.settings import LimitSettings
from workers.anchor import Time
from workers.answers import AnswerWriter
from workers.logs import Log
from workers.suspects import Suspects
from workers.tickets import (
    WHOLE_PARTITION,
    Admitted,
    Claimed,
    OrderUnit,
    Part,
    Segment,
    Settled,
    Ticket,
)

MAX_SKEW_S = 5.0
"""A capture time further in the future counts as the receipt time, and is flagged."""

EVERY_FRAME = Sampling()


@dataclass(frozen=True, slots=True)
class Intake:
    """How one input topic is taken in.

    Attributes:
        route: the route's name.
        buckets: its bucket table.
        sample_every: frames whose `seq` is a multiple of it are detected, the others skipped.
        claims: which pictures kept elsewhere may be fetched.
        sampling: of segments that do not say which of their frames are answered.
    """

    route: str
    buckets: BucketTable
    sample_every: int
    claims: ClaimRules = field(default_factory=ClaimRules)
    sampling: Sampling = EVERY_FRAME


class Admission:
    """Turns records into items or answers. Used by one thread; never raises for a record.

    Args:
        intakes: by input topic.
        limits: for codec and probe.
        unit: within what answers keep the order of their records.
        writer: makes the answers.
        time: monotonic and Unix time.
        log: for unexpected errors.
        suspects: who runs alone, and who does not run any more.
    """

    def __init__(
        self,
        intakes: Mapping[str, Intake],
        limits: LimitSettings,
        *,
        unit: OrderUnit,
        writer: AnswerWriter,
        time: Time,
        log: Log,
        suspects: Suspects,
    ) -> None:
        self._intakes = intakes
        self._limits = limits
        self._probe_limits = ProbeLimits(max_pixels=limits.max_pixels, max_scans=limits.max_scans)
        self._unit = unit
        self._writer = writer
        self._anchor, self._clock = time.anchor, time.clock
        self._log = log
        self.suspects = suspects
        self._attempts = itertools.count(1)

    def admit(self, record: RawRecord, epoch: int) -> Admitted | Claimed | Segment | Settled:
        """Take one record in, received now."""
        route = self._intakes[record.topic].route
        ticket = self._ticket(record, epoch, route)
        try:
            frame = read_frame(record, self._limits)
            ticket = self._with_frame(ticket, frame)
            if frame.encoding in SEGMENT_ENCODINGS:
                return self._admit_segment(ticket, frame)
            refusal = self._answered_unseen(ticket, frame)
            if refusal is not None:
                return refusal
            if frame.claim is not None:
                self._intakes[record.topic].claims.check(frame.claim)
                return Claimed(_claiming(ticket, frame.claim))
            return self._admit_picture(ticket, frame)
        except PoisonError as error:
            return Settled(ticket, self._writer.dead_letter(ticket, error))
        except Exception as error:  # noqa: BLE001 (one record's, not the worker's)
            return self._unforeseen(ticket, error)

    def admit_fetched(self, ticket: Ticket, got: memoryview | PoisonError) -> Admitted | Settled:
        """Go on with a record whose claim was fetched, or could not be."""
        frame = ticket.frame
        if frame is None:
            raise ValueError(f"{ticket.coordinates} was never read")
        if isinstance(got, PoisonError):
            return Settled(ticket, self._writer.dead_letter(ticket, got))
        frame = structs.replace(frame, data=got)
        ticket = structs.replace(ticket, frame=frame)
        try:
            if self._deadline_at(ticket, frame) <= self._clock():
                return Settled(ticket, self._writer.unseen(ticket, frame, Status.EXPIRED))
            return self._admit_picture(ticket, frame)
        except PoisonError as error:
            return Settled(ticket, self._writer.dead_letter(ticket, error))
        except Exception as error:  # noqa: BLE001 (one record's, not the worker's)
            return self._unforeseen(ticket, error)

    def admit_frame(self, segment: Segment, decoded: SegmentFrame) -> Admitted | Settled:
        """Take one decoded frame of a segment in. It is the next part of its record."""
        parts = segment.parts
        ticket = structs.replace(
            segment.ticket, nbytes=0, part=Part(segment, number=parts.take(), last=decoded.last)
        )
        if decoded.last:
            parts.end()
        try:
            frame = _frame_of(segment.message, decoded)
            # The pixels are bounded by credits that are given back once they are inferred.
            kept = structs.replace(frame, data=memoryview(b""))
            ticket = self._with_frame(ticket, kept)
            return self._answered_unseen(ticket, frame) or self._admit_picture(ticket, frame)
        except PoisonError as error:
            return Settled(ticket, self._writer.dead_letter(ticket, error))
        except Exception as error:  # noqa: BLE001 (one record's, not the worker's)
            return self._unforeseen(ticket, error)

    def refuse_rest(self, segment: Segment, error: PoisonError) -> Settled:
        """Answer what is left of a segment, after its good frames. It is the record's last part."""
        parts = segment.parts
        part = Part(segment, number=parts.take(), last=True, is_frame=False)
        parts.end()
        ticket = structs.replace(segment.ticket, nbytes=0, part=part)
        return Settled(ticket, self._writer.dead_letter(ticket, error))

    def _unforeseen(self, ticket: Ticket, error: Exception) -> Settled:
        # One record must not end the worker, or it would end every worker after this one.
        self._log.exception("admission_failed", source=str(ticket.coordinates))
        poison = PoisonError(
            Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}", stage="admission"
        )
        return Settled(ticket, self._writer.dead_letter(ticket, poison))

    def _admit_segment(self, ticket: Ticket, frame: FrameMessage) -> Segment:
        """A segment to be read, once it has been fetched where it is only claimed.

        Raises:
            PoisonError: it has crashed workers, or its claim is refused.
        """
        verdict = None if ticket.suspect is None else ticket.suspect.verdict()
        if verdict is not None:
            raise verdict
        sampling = self._intakes[ticket.record.topic].sampling
        if frame.sample_fps is not None or frame.sample_every is not None:
            sampling = Sampling(frame.sample_every or 1, frame.sample_fps)
        if frame.claim is not None:
            self._intakes[ticket.record.topic].claims.check(frame.claim)
            ticket = _claiming(ticket, frame.claim)
        return Segment(ticket, frame, sampling)

    def _ticket(self, record: RawRecord, epoch: int, route: str) -> Ticket:
        partition = (record.topic, record.partition)
        at = Coordinates(record.topic, record.partition, record.offset)
        key = None
        if self._unit is OrderUnit.PARTITION:
            key = StreamKey(partition, epoch, WHOLE_PARTITION)
        attempts = 1 + attempts_before(record.headers)
        suspect = self.suspects.find(at)
        if suspect is not None:
            attempts += suspect.deaths - (suspect.verdict() is not None)
        return Ticket(
            record,
            partition,
            at,
            epoch,
            route,
            received_at=self._clock(),
            nbytes=len(record.value or b""),
            key=key,
            attempts=attempts,
            suspect=suspect,
        )

    def _with_frame(self, ticket: Ticket, frame: FrameMessage) -> Ticket:
        captured_at = self._anchor.to_monotonic(frame.captured_at_us)
        key = ticket.key
        if self._unit is OrderUnit.STREAM and frame.ordered:
            key = StreamKey(ticket.partition, ticket.epoch, frame.stream_id)
        return structs.replace(
            ticket,
            frame=frame,
            key=key,
            lag_s=max(ticket.received_at - captured_at, 0.0),
            clock_skew=captured_at > ticket.received_at + MAX_SKEW_S,
        )

    def _answered_unseen(self, ticket: Ticket, frame: FrameMessage) -> Settled | None:
        """What needs no look at the picture, and none is fetched for."""
        if frame.seq % self._intakes[ticket.record.topic].sample_every:
            return Settled(ticket, self._writer.unseen(ticket, frame, Status.SKIPPED))
        # A segment's frames come as they are decoded, not with their record.
        at = ticket.received_at if ticket.part is None else self._clock()
        if self._deadline_at(ticket, frame) <= at:
            return Settled(ticket, self._writer.unseen(ticket, frame, Status.EXPIRED))
        verdict = None if ticket.suspect is None else ticket.suspect.verdict()
        if verdict is not None:
            raise verdict
        return None

    def _admit_picture(self, ticket: Ticket, frame: FrameMessage) -> Admitted:
        intake = self._intakes[ticket.record.topic]
        header = probe(frame, self._probe_limits)
        bucket, geometry = intake.buckets.choose(header.width, header.height)
        item = Item(
            attempt_id=next(self._attempts),
            coordinates=ticket.coordinates,
            epoch=ticket.epoch,
            route=ticket.route,
            frame=frame,
            header=header,
            bucket=bucket,
            geometry=geometry,
            # What was fetched or decoded here waits for company from when it was there.
            received_at=self._clock() if ticket.claim or ticket.part else ticket.received_at,
            deadline_at=self._deadline_at(ticket, frame),
            nbytes=ticket.nbytes if ticket.part is None else frame.data.nbytes,
            clock_skew=ticket.clock_skew,
            attempts=ticket.attempts,
            solo=ticket.suspect is not None,
        )
        return Admitted(ticket, item)

    def _deadline_at(self, ticket: Ticket, frame: FrameMessage) -> float:
        """Wall time is turned into a monotonic instant here, once, and never looked at again."""
        if frame.ttl_ms is None:
            return math.inf
        captured_at = self._anchor.to_monotonic(frame.captured_at_us)
        from_at = ticket.received_at if ticket.clock_skew else captured_at
        return from_at + frame.ttl_ms / 1e3


def _claiming(ticket: Ticket, claim: Claim) -> Ticket:
    """What is to be fetched counts with what is here."""
    return structs.replace(ticket, claim=claim, nbytes=ticket.nbytes + claim.length)


def _frame_of(segment: FrameMessage, decoded: SegmentFrame) -> FrameMessage:
    """The decoded frame as a raw picture of the segment's stream."""
    return structs.replace(
        segment,
        seq=segment.seq + decoded.index,
        captured_at_us=min(segment.captured_at_us + decoded.offset_us, 2**63 - 1),
        encoding=Encoding.RGB24,
        data=decoded.pixels,
        width=decoded.width,
        height=decoded.height,
        sample_every=None,
        sample_fps=None,
    )
