"""The frame as it travels: one encoded or raw picture of one stream (DESIGN: wire format)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

FRAME_VERSION = 1


class Encoding(StrEnum):
    """How `FrameMessage.data` is to be read."""

    JPEG = "jpeg"
    PNG = "png"
    WEBP = "webp"
    BMP = "bmp"
    TIFF = "tiff"
    RGB24 = "rgb24"
    BGR24 = "bgr24"
    GRAY8 = "gray8"
    NV12 = "nv12"


class Form(StrEnum):
    """Which of the accepted input forms a record had."""

    ENVELOPE = "envelope"
    """A MessagePack map, the native form."""
    JSON = "json"
    """A JSON object with base64 `data`."""
    BARE = "bare"
    """The bytes of an encoded picture and nothing else."""


class FrameMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One frame as received, whatever the input form.

    Attributes:
        stream_id: one camera or job, UTF-8.
        seq: monotonic per stream; the record's offset where the producer gave none.
        captured_at_us: Unix microseconds; the record's timestamp where the producer gave none.
        encoding: how to read `data`.
        data: the picture's bytes, a view into the record (never a copy, except JSON's base64).
        width, height: pixels; present for raw encodings only.
        interval_us: the stream's declared time between frames, microseconds, or None.
        ttl_ms: time to live from `captured_at_us`, milliseconds, or None for no limit.
        meta: returned untouched in the result; at most 16 KiB.
        form: the input form this was read from.
        ordered: False for a stream made up from the partition (no key, no stream id): it has
            neither order nor interval.
        key_mismatch: the envelope's `stream_id` differs from the record's key (served, counted).
    """

    stream_id: str
    seq: int
    captured_at_us: int
    encoding: Encoding
    data: memoryview
    width: int | None = None
    height: int | None = None
    interval_us: int | None = None
    ttl_ms: int | None = None
    meta: dict[str, str] = {}
    form: Form = Form.ENVELOPE
    ordered: bool = True
    key_mismatch: bool = False
