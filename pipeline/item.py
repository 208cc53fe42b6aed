"""The messages inside the process: a frame's work order, the batch it joins, the outcome.

All are immutable once built and cross threads freely. What is made for every frame is a `Struct`: a
frozen dataclass takes ten times as long to make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec import Struct

from pipeline.bucket import Bucket
from pipeline.letterbox import Letterbox
from schemas.errors import PoisonError
from schemas.frame import Encoding, FrameMessage
from schemas.result import ClosedBy, Detection, Status


class Coordinates(Struct, frozen=True, gc=False):
    """Where a record lies. The idempotency key of its answer."""

    topic: str
    partition: int
    offset: int


class Header(Struct, frozen=True, gc=False):
    """What the probe reads from a picture without decoding it.

    Attributes:
        encoding: the format found in the bytes.
        coded_width, coded_height: pixels as stored.
        orientation: EXIF orientation 1..8 (1 where the picture has none).
    """

    encoding: Encoding
    coded_width: int
    coded_height: int
    orientation: int = 1

    @property
    def width(self) -> int:
        """Displayed width in pixels: EXIF orientations 5..8 swap the sides."""
        return self.coded_height if self.orientation >= 5 else self.coded_width

    @property
    def height(self) -> int:
        """Displayed height in pixels."""
        return self.coded_width if self.orientation >= 5 else self.coded_height


class Item(Struct, frozen=True, eq=False, gc=False):
    """A frame's work order. Instants (`*_at`) are seconds of the process's monotonic clock.

    Attributes:
        attempt_id: unique in the process; a late completion is matched by it.
        coordinates: of the record it came from.
        epoch: the assignment of the partition under which it was admitted.
        route: name of the route it belongs to.
        frame: the message; `frame.data` views the record's own bytes, or those fetched.
        header: what the probe read.
        bucket, geometry: where the picture goes and how.
        received_at: when the worker took it from Kafka, or had fetched what it claims.
        deadline_at: when its time to live ends; infinity without one.
        nbytes: of the record's value and of what it claims: its flow credits.
        clock_skew: its capture time was more than 5 s in the future and receipt time was used.
        attempts: how often the frame is tried with this one, ≥ 1.
        solo: it is a suspect: nothing else may be on the device while it is.
    """

    attempt_id: int
    coordinates: Coordinates
    epoch: int
    route: str
    frame: FrameMessage
    header: Header
    bucket: Bucket
    geometry: Letterbox
    received_at: float
    deadline_at: float = math.inf
    nbytes: int = 0
    clock_skew: bool = False
    attempts: int = 1
    solo: bool = False

    @property
    def stream(self) -> str:
        """The stream's id, the unit of order and of the frame interval."""
        return self.frame.stream_id


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A closed batch: the plan that a slot carries out.

    Attributes:
        batch_id: unique in the process, rising.
        route, bucket: shared by all items.
        items: 1 ≤ len(items) ≤ bucket.max_batch, in stream order.
        closed_by: the one reason it was closed.
        closed_at: monotonic seconds.
        limit: the most frames that a batch of its queue had then; None for `bucket.max_batch`.
    """

    batch_id: int
    route: str
    bucket: Bucket
    items: tuple[Item, ...]
    closed_by: ClosedBy
    closed_at: float
    limit: int | None = None

    @property
    def fill(self) -> float:
        """Its frames over the most that it could have had, above 0 to 1."""
        return len(self.items) / (self.limit or self.bucket.max_batch)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """What a batch's stages took (seconds), and when the batch was taken up and done
    (monotonic seconds)."""

    started_at: float
    finished_at: float
    decode_s: float
    infer_s: float
    post_s: float


class Outcome(Struct, frozen=True, eq=False, gc=False):
    """What became of one item. Exactly one of: an answer (`status`), or `error` (dead letter).

    Attributes:
        item: the work order.
        status: OK, EXPIRED or SKIPPED; ignored when `error` is set.
        detections: best score first; empty unless OK.
        error: the reason for a dead letter, or None.
        batch: the batch it was in, or None if it never joined one.
        index: its row in the batch as planned.
        times: of its batch, or None.
        attempts: how often it was run here, ≥ 1; more when memory ran out.
    """

    item: Item
    status: Status = Status.OK
    detections: tuple[Detection, ...] = ()
    error: PoisonError | None = None
    batch: Batch | None = None
    index: int = 0
    times: StageTimes | None = None
    attempts: int = 1
