"""The frame as it travels: one encoded or raw picture of one stream, or a segment of its video
(docs/wire-format.md).

`FrameEnvelope` and `FrameJson` are the two keyed wire forms, `FrameMessage` is what the codec
makes of them and of bare pictures.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from schemas.claim_uri import MAX_URI_CHARS

FRAME_VERSION = 1

MAX_STREAM_ID_BYTES = 256
"""Longest stream id, UTF-8 encoded, and longest record key that can stand for one."""

MAX_SEQ = 2**64 - 1
"""Largest sequence number: MessagePack's largest unsigned integer."""


class Encoding(StrEnum):
    """How `FrameMessage.data` is to be read."""

    JPEG = "jpeg"
    PNG = "png"
    WEBP = "webp"
    BMP = "bmp"
    TIFF = "tiff"
    GIF = "gif"
    AVIF = "avif"
    RGB24 = "rgb24"
    BGR24 = "bgr24"
    GRAY8 = "gray8"
    NV12 = "nv12"
    MP4 = "mp4"
    MKV = "mkv"
    TS = "ts"
    H264 = "h264"
    H265 = "h265"


RAW_ENCODINGS = frozenset({Encoding.RGB24, Encoding.BGR24, Encoding.GRAY8, Encoding.NV12})
"""Encodings without a header: `width` and `height` are required, rows are packed."""

SEGMENT_ENCODINGS = frozenset(
    {Encoding.MP4, Encoding.MKV, Encoding.TS, Encoding.H264, Encoding.H265}
)
"""Encodings of a segment: some seconds of video in one record, with one answer per frame."""


class Form(StrEnum):
    """Which of the accepted input forms a record had."""

    ENVELOPE = "envelope"
    """A MessagePack map, the native form."""
    JSON = "json"
    """A JSON object with base64 `data`."""
    BARE = "bare"
    """The bytes of an encoded picture or segment and nothing else."""


Version = Annotated[int, msgspec.Meta(ge=1, extra_json_schema={"maximum": FRAME_VERSION})]
Seq = Annotated[int, msgspec.Meta(ge=0, extra_json_schema={"maximum": MAX_SEQ})]
"""msgspec checks no bound beyond int64; the codec checks the upper one."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Side = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
UnixMicros = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
FramesPerSecond = Annotated[float, msgspec.Meta(gt=0.0, le=1_000.0)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
EncodingName = Annotated[
    str, msgspec.Meta(extra_json_schema={"enum": [encoding.value for encoding in Encoding]})
]
"""A text, not an `Encoding`, so that an unknown one is refused by its name."""
Meta = Annotated[
    msgspec.Raw,
    msgspec.Meta(
        extra_json_schema={"type": ["object", "null"], "additionalProperties": {"type": "string"}}
    ),
]
"""Left raw, so that its length is known before it can cost anything: a million small strings
take a second to decode."""


Uri = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_URI_CHARS)]
Sha256 = Annotated[
    str, msgspec.Meta(min_length=64, max_length=64, pattern="^[0-9a-fA-F]{64}$")
]  # fmt: skip
"""With both lengths, or the pattern would take a line break at the end."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Where a frame's bytes are kept, when the record does not carry them.

    Attributes:
        uri: as the producer wrote it; not to be opened before it was checked.
        sha256: of the bytes, 64 hexadecimal digits, lower case.
        length: how many bytes, ≥ 1.
    """

    uri: str
    sha256: str
    length: int


class FrameKeys(msgspec.Struct, frozen=True, kw_only=True):
    """What both keyed wire forms share. Unknown keys are ignored; null means absent.

    Attributes:
        v: version of the format, 1; absent means 1.
        encoding: one of jpeg png webp bmp tiff gif avif rgb24 bgr24 gray8 nv12, lower case; or of a
            segment of video: mp4 mkv ts h264 h265.
        data: the picture's or segment's bytes; required unless uri is there.
        uri: where those bytes are kept, in place of data; at most 2048 characters. Needs sha256
            and length.
        sha256: SHA-256 of those bytes, 64 hexadecimal digits.
        length: how many those bytes are, at least 1.
        width, height: pixels, 1 to 2147483647; required for raw encodings, advisory otherwise.
        interval_us: the stream's time between frames, microseconds, at least 1.
        ttl_ms: time to live from captured_at_us, milliseconds, at least 1; absent for no limit.
        meta: map of strings to strings, returned untouched; its encoded form has at most
            limits.max_meta_bytes (16 KiB).
        sample_every: of a segment, answer every n-th frame beginning with the first, at least 1;
            the others have no answer. Absent means as the route says.
        sample_fps: of a segment, answer so many frames per second, more than 0 to 1000; not
            together with sample_every.
    """

    v: Version = FRAME_VERSION
    encoding: EncodingName
    data: memoryview | None = None
    uri: Uri | None = None
    sha256: Sha256 | None = None
    length: Positive | None = None
    width: Side | None = None
    height: Side | None = None
    interval_us: Positive | None = None
    ttl_ms: Positive | None = None
    meta: Meta = msgspec.field(default_factory=msgspec.Raw)
    sample_every: Positive | None = None
    sample_fps: FramesPerSecond | None = None


class FrameEnvelope(FrameKeys, frozen=True, kw_only=True):
    """The native form: a MessagePack map.

    Attributes:
        stream_id: one camera or job, 1 to 256 bytes of UTF-8; the record's key should equal it.
        seq: monotonic per stream, 0 to 18446744073709551615; of a segment its first frame's, and
            each further frame has one more.
        captured_at_us: when the picture was taken, Unix microseconds, a signed 64-bit integer; of a
            segment when its first frame was.
    """

    stream_id: Name
    seq: Seq
    captured_at_us: UnixMicros


class FrameJson(FrameKeys, frozen=True, kw_only=True):
    """The JSON form: an object with the same keys.

    Attributes:
        stream_id: as in the native form; absent means the record's key.
        seq: as in the native form; absent means the record's offset.
        captured_at_us: as in the native form; absent means the record's timestamp.
    """

    stream_id: Name | None = None
    seq: Seq | None = None
    captured_at_us: UnixMicros | None = None


class FrameMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One frame, or one segment, as received, whatever the input form.

    Attributes:
        stream_id: one camera or job, UTF-8.
        seq: monotonic per stream; the record's offset where the producer gave none.
        captured_at_us: Unix microseconds; the record's timestamp where the producer gave none.
        encoding: how to read `data`.
        data: the bytes, a view into the record (never a copy, except JSON's base64); of a
            segment's frame the decoded pixels; empty while a claim has not been fetched.
        claim: where the bytes are kept, for a record that does not carry them. Stays when they
            have been fetched.
        width, height: pixels as the producer stated them; always present for raw encodings,
            never to be trusted for encoded ones.
        interval_us: the stream's declared time between frames, microseconds, or None.
        ttl_ms: time to live from `captured_at_us`, milliseconds, or None for no limit.
        meta: returned untouched in the result; at most 16 KiB.
        sample_every, sample_fps: which frames of a segment are answered; one of them at most, both
            None where the producer does not say and for pictures.
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
    claim: Claim | None = None
    width: int | None = None
    height: int | None = None
    interval_us: int | None = None
    ttl_ms: int | None = None
    meta: dict[str, str] = {}
    sample_every: int | None = None
    sample_fps: float | None = None
    form: Form = Form.ENVELOPE
    ordered: bool = True
    key_mismatch: bool = False
