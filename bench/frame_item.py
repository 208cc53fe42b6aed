"""A picture's work order, as admission would make it."""

from __future__ import annotations

from pipeline.bucket import Bucket, BucketTable
from pipeline.item import Coordinates, Item
from pipeline.letterbox import letterbox
from pipeline.probe import ProbeLimits, probe
from schemas.frame import Encoding, FrameMessage

_LIMITS = ProbeLimits(max_pixels=50_000_000, max_scans=100)


def frame_item(data: bytes, encoding: Encoding, where: Bucket | BucketTable) -> Item:
    """The picture in this bucket, or in the one that the table chooses for it.

    Raises:
        PoisonError: what no worker would take in.
    """
    frame = FrameMessage(
        stream_id="bench", seq=0, captured_at_us=0, encoding=encoding, data=memoryview(data)
    )
    header = probe(frame, _LIMITS)
    if isinstance(where, BucketTable):
        bucket, geometry = where.choose(header.width, header.height)
    else:
        bucket = where
        geometry = letterbox(header.width, header.height, bucket.width, bucket.height)
    return Item(
        attempt_id=0,
        coordinates=Coordinates("bench", 0, 0),
        epoch=0,
        route="default",
        frame=frame,
        header=header,
        bucket=bucket,
        geometry=geometry,
        received_at=0.0,
    )
