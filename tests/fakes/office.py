"""Admission and delivery with lists in place of engine and sink, and records for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from pipeline import metrics as m
from pipeline.bucket import Bucket, BucketTable
from pipeline.claim_rules import ClaimRules
from pipeline.flow import Flow
from pipeline.item import Batch, Coordinates, Item, Outcome
from pipeline.journal import Stage
from pipeline.ledger import Ledger, PartitionId
from pipeline.metrics import Metrics
from pipeline.segment import SegmentFrame
from pipeline.sequencer import Sequencer
from schemas.codec import write_frame
from schemas.errors import FatalError, PoisonError
from schemas.frame import Claim, Encoding, FrameMessage
from schemas.record import RawRecord
from schemas.result import ClosedBy
from schemas.settings import LimitSettings
from tests.builders import an_item
from tests.builders_pictures import jpeg, picture
from tests.fakes.clock import VirtualClock
from tests.fakes.engine import MODEL
from tests.fakes.fetcher import FakeFetcher
from workers.admission import Admission, Intake
from workers.anchor import Anchor, Time
from workers.answers import AnswerWriter, Destination
from workers.delivery import Delivery
from workers.desk import Books, Ends
from workers.downloads import Bounds, Downloads
from workers.logs import RecordLog, get_log
from workers.suspects import SuspectFolder, Suspects
from workers.tickets import Answer, OrderUnit, Segment

P0: PartitionId = ("in", 0)
P1: PartitionId = ("in", 1)
JPEG = jpeg(picture(16, 16))
UNIX_US = 1_700_000_000_000_000


def a_record(
    offset: int, *, partition: int = 0, key: bytes | None = b"cam", value: bytes | None = JPEG
) -> RawRecord:
    return RawRecord("in", partition, offset, key, value, UNIX_US // 1000)


def an_envelope(**fields: object) -> bytes:
    known: dict[str, object] = {
        "stream_id": "cam", "seq": 0, "captured_at_us": UNIX_US,
        "encoding": Encoding.JPEG, "data": memoryview(JPEG),
    }  # fmt: skip
    return write_frame(FrameMessage(**(known | fields)))


class Office:
    """A delivery whose engine and sink are two lists."""

    def __init__(
        self,
        *,
        unit: OrderUnit = OrderUnit.STREAM,
        sample_every: int = 1,
        max_held: int = 64,
        suspects: Suspects | None = None,
        claims: ClaimRules | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self.fetcher = FakeFetcher()
        self.failures: list[FatalError] = []
        self.clock = VirtualClock()
        self.suspects = suspects or Suspects()
        self.time = Time(Anchor(self.clock(), UNIX_US), self.clock)
        self.items: list[Item] = []
        self.queue: list[Answer] = []
        self.segments: list[Segment] = []
        self.metrics = Metrics()
        self.books = Books(Ledger(), Sequencer[Answer](max_held), Flow(1_000, 1 << 30))
        writer = AnswerWriter(
            {"default": Destination("out", "dlq", MODEL)},
            worker="me", max_result_bytes=10_000, anchor=self.time.anchor, clock=self.clock,
        )  # fmt: skip
        table = BucketTable([Bucket("b", 1 << 40, 32, 32, 4)])
        admission = Admission(
            {"in": Intake("default", table, sample_every, claims or ClaimRules())},
            LimitSettings(), unit=unit, writer=writer, time=self.time, log=get_log("test"),
            suspects=self.suspects,
        )  # fmt: skip
        self.downloads = Downloads(
            self.fetcher, bounds or Bounds(4, 1 << 20, max_held),
            done=lambda ticket, got: self.delivery.fetched(ticket, got),  # noqa: PLW0108 (made later)
            fail=self.failures.append, clock=self.clock, metrics=self.metrics, log=get_log("test"),
        )  # fmt: skip
        ends = Ends(self._submit, self.queue.append, self.downloads, self.segments.append)
        self.delivery = Delivery(
            self.books, admission, writer, ends,
            self.metrics, RecordLog(get_log("test")), self.time,
        )  # fmt: skip

    def _submit(self, items: Sequence[Item]) -> None:
        self.items += items

    def finish(self, *items: Item, error: PoisonError | None = None) -> None:
        for item in items:
            self.items.remove(item)
        for item in items:
            batch = Batch(1, item.route, item.bucket, (item,), ClosedBy.IDLE, self.clock())
            self.delivery.complete([Outcome(item, error=error, batch=batch)])

    def is_live(self, answer: Answer) -> bool:
        return self.books.ledger.is_open(answer.ticket.partition, answer.ticket.epoch)

    def acknowledge(self) -> list[Answer]:
        """The broker takes everything that is queued."""
        taken, self.queue[:] = list(self.queue), []
        live = [answer for answer in taken if self.is_live(answer)]
        for answer in taken:
            if answer not in live:
                self.delivery.abandon(answer.ticket)
        self.delivery.acknowledge(live)
        return taken

    def conserved(self) -> bool:
        settled = sum(map(self.metrics.total, (m.ANSWERED, m.DEAD_LETTERED, m.ABANDONED)))
        return self.metrics.total(m.RECEIVED) == settled + self.delivery.in_flight


def suspects_after(folder: Path, *deaths: list[int]) -> Suspects:
    """Suspects once workers died with records of P0 inside, one list of offsets each."""
    files = SuspectFolder(folder / "suspects", get_log("test"))
    for offsets in deaths:
        own = files.open_journal()
        items = [replace(an_item(seq=n), coordinates=Coordinates(*P0, n)) for n in offsets]
        own.journal.enter(Stage.DECODE, items)
        journal = own.journal.path
        content = journal.read_bytes()
        own.close()
        journal.write_bytes(content)
        files.adopt()
    return Suspects(files)


def an_office(**options: object) -> Office:
    office = Office(**options)
    office.delivery.assign([P0, P1])
    return office


FRAME_BYTES = 8 * 8 * 3


def a_decoded(index: int, *, last: bool = False) -> SegmentFrame:
    return SegmentFrame(index, index * 100_000, 8, 8, memoryview(bytes(FRAME_BYTES)), last)


def decode(office: Office, segment: Segment, *indices: int, last: bool = False) -> None:
    """Frames come out of the segment; with `last`, the last of them is its last."""
    for index in indices:
        assert office.delivery.segments.may_decode(segment, FRAME_BYTES)
        ends = last and index == indices[-1]
        office.delivery.segments.take_frame(segment, a_decoded(index, last=ends), FRAME_BYTES)
    if last:
        office.delivery.segments.end(segment)


def uri(name: object) -> str:
    return f"memory://ok/{name}"


def a_claim_record(
    offset: int, *, stream: str = "cam", partition: int = 0, name: object = None, **fields: object
) -> RawRecord:
    known: dict[str, object] = {
        "stream_id": stream, "seq": offset, "captured_at_us": UNIX_US, "encoding": Encoding.JPEG,
        "data": memoryview(b""),
        "claim": Claim(
            uri=uri(offset if name is None else name), length=len(JPEG),
            sha256=hashlib.sha256(JPEG).hexdigest(),
        ),
    }  # fmt: skip
    value = write_frame(FrameMessage(**(known | fields)))
    return a_record(offset, partition=partition, key=stream.encode(), value=value)
