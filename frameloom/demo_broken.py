"""The demo's broken records: what cameras and hostile producers send, and what becomes of it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import msgspec

from schemas.errors import Reason
from schemas.frame import FRAME_VERSION

BROKEN_STREAM = "broken"
"""Record key of the broken records."""


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """A record that must become a dead letter, and with which reason."""

    name: str
    value: bytes
    reason: Reason


def broken_records(jpeg: bytes) -> tuple[BrokenRecord, ...]:
    """One of each kind. `jpeg` is a good picture to break."""
    later = msgspec.msgpack.encode(
        {
            "v": FRAME_VERSION + 1,
            "stream_id": BROKEN_STREAM,
            "seq": 0,
            "captured_at_us": 0,
            "encoding": "jpeg",
            "data": jpeg[:64],
        }
    )
    return (
        BrokenRecord("JPEG cut off in its header", jpeg[:40], Reason.TRUNCATED_HEADER),
        BrokenRecord("garbage", b"\x07not a frame\xfe" * 8, Reason.BAD_ENVELOPE),
        BrokenRecord("later version", later, Reason.UNSUPPORTED_VERSION),
        BrokenRecord("empty", b"", Reason.EMPTY_RECORD),
        BrokenRecord("PNG claiming 4 gigapixels", _bomb(65_500), Reason.TOO_MANY_PIXELS),
        BrokenRecord("PDF", b"%PDF-1.7\n%%EOF\n", Reason.UNSUPPORTED_ENCODING),
    )


def _bomb(side: int) -> bytes:
    """A PNG whose header claims `side` × `side` pixels and whose body is a few bytes."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
