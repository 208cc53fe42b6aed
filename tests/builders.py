"""Builders: messages with defaults, so that a test states only what it is about."""

from __future__ import annotations

import itertools
import math

from pipeline.bucket import Bucket
from pipeline.item import Coordinates, Header, Item
from pipeline.letterbox import letterbox
from schemas.frame import Encoding, FrameMessage

_attempts = itertools.count(1)

SMALL = Bucket(name="480p", max_source_pixels=420_000, height=64, width=96, max_batch=4)
LARGE = Bucket(name="4k", max_source_pixels=50_000_000, height=96, width=160, max_batch=4)


def a_frame(
    stream: str = "cam",
    seq: int = 0,
    *,
    data: bytes = b"",
    captured_at_us: int = 0,
    interval_us: int | None = None,
    ordered: bool = True,
) -> FrameMessage:
    return FrameMessage(
        stream_id=stream,
        seq=seq,
        captured_at_us=captured_at_us,
        encoding=Encoding.JPEG,
        data=memoryview(data),
        interval_us=interval_us,
        ordered=ordered,
    )


def an_item(
    stream: str = "cam",
    seq: int = 0,
    *,
    received_at: float = 1_000.0,
    bucket: Bucket = SMALL,
    route: str = "default",
    partition: int = 0,
    deadline_at: float = math.inf,
    interval_s: float | None = None,
    data: bytes = b"",
    size: tuple[int, int] = (96, 64),
    solo: bool = False,
) -> Item:
    """An item of a stream whose capture times follow `received_at`. `size` is width, height."""
    return Item(
        attempt_id=next(_attempts),
        coordinates=Coordinates("frames", partition, seq),
        epoch=1,
        route=route,
        frame=a_frame(
            stream,
            seq,
            data=data,
            captured_at_us=round(received_at * 1e6),
            interval_us=None if interval_s is None else round(interval_s * 1e6),
        ),
        header=Header(Encoding.JPEG, *size),
        bucket=bucket,
        geometry=letterbox(*size, bucket.width, bucket.height),
        received_at=received_at,
        deadline_at=deadline_at,
        nbytes=len(data),
        solo=solo,
    )
