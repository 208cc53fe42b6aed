"""What the soak sends: one kind of record at a time, without end."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

from schemas.codec import write_frame
from schemas.frame import Claim, Encoding, FrameMessage

STREAMS = 8
SEGMENT_FRAMES = 12
"""Frames of one segment, one answer each."""
DEAD_EVERY = 10
TTL_MS = 300


class Kind(StrEnum):
    """What records are like, or what happens to the worker meanwhile."""

    FRAMES = "frames"
    TTL = "ttl"
    """Every frame has a time to live; half of them are late when they come."""
    DEAD = "dead"
    """One in ten is no picture."""
    SEGMENTS = "segments"
    CLAIMS = "claims"
    STREAMS = "streams"
    """Each stream has a single frame, and says that the next one comes in a day."""
    EXACTLY_ONCE = "exactly-once"
    REBALANCE = "rebalance"
    """A second worker comes and goes."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One record, and how many answers it has."""

    key: bytes
    value: bytes
    answers: int = 1


def a_picture() -> bytes:
    """A tiny JPEG."""
    ok, encoded = cv2.imencode(".jpg", np.full((48, 64, 3), 90, np.uint8))
    if not ok:
        raise RuntimeError("no picture")
    return encoded.tobytes()


def a_segment(frames: int) -> bytes:
    """A tiny H.264 segment in MP4."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(frames):
            grey = np.full((48, 64, 3), 20 + number, np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


class Load:
    """Records of one kind.

    Args:
        kind: which.
        folder: where claimed pictures lie.
    """

    def __init__(self, kind: Kind, folder: Path) -> None:
        self._picture = a_picture()
        self._claim: Claim | None = None
        make: dict[Kind, Callable[[int], Sent]] = {
            Kind.TTL: self._mortal, Kind.DEAD: self._dead, Kind.SEGMENTS: self._segment,
            Kind.CLAIMS: self._claimed, Kind.STREAMS: self._single,
        }  # fmt: skip
        self._make = make.get(kind, self._frame)
        if kind is Kind.SEGMENTS:
            self._video = a_segment(SEGMENT_FRAMES)
        if kind is Kind.CLAIMS:
            path = folder / "picture.jpg"
            path.write_bytes(self._picture)
            digest = hashlib.sha256(self._picture).hexdigest()
            self._claim = Claim(uri=path.as_uri(), sha256=digest, length=len(self._picture))

    def record(self, number: int) -> Sent:
        """The `number`th, from 0."""
        return self._make(number)

    def _frame(self, number: int, **keys: object) -> Sent:
        stream = f"cam-{number % STREAMS}"
        known: dict[str, object] = {
            "stream_id": stream, "seq": number // STREAMS, "captured_at_us": time.time_ns() // 1000,
            "encoding": Encoding.JPEG, "data": memoryview(self._picture),
        }  # fmt: skip
        frame = FrameMessage(**(known | keys))  # pyright: ignore[reportArgumentType]
        return Sent(frame.stream_id.encode(), write_frame(frame))

    def _mortal(self, number: int) -> Sent:
        age_us = (number % 2) * TTL_MS * 1000
        return self._frame(number, ttl_ms=TTL_MS, captured_at_us=time.time_ns() // 1000 - age_us)

    def _dead(self, number: int) -> Sent:
        if number % DEAD_EVERY:
            return self._frame(number)
        return self._frame(number, data=memoryview(b"no picture at all"))

    def _segment(self, number: int) -> Sent:
        sent = self._frame(number, encoding=Encoding.MP4, data=memoryview(self._video))
        return Sent(sent.key, sent.value, SEGMENT_FRAMES)

    def _claimed(self, number: int) -> Sent:
        return self._frame(number, claim=self._claim, data=memoryview(b""))

    def _single(self, number: int) -> Sent:
        return self._frame(number, stream_id=f"once-{number}", interval_us=86_400_000_000)
