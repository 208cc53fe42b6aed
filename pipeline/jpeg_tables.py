"""Puts the standard Huffman tables into a JPEG that has none, as UVC cameras send them.

A frame of Motion JPEG leaves the tables out because all frames share the ones that the standard
gives as typical. Some decoders know them by heart, others do not (nvJPEG); with them in place every
decoder reads the frame.
Source: ITU-T T.81, annex K.3 (tables K.3 to K.6), annex B.2.4.2 (how a DHT segment lists them).
"""

from __future__ import annotations

import struct

from pipeline.probe_jpeg import jpeg_segments
from schemas.errors import PoisonError

_DHT, _SOS = 0xC4, 0xDA
_SEQUENTIAL = frozenset({0xC0, 0xC1})
"""Frames whose tables K.3 gives; a progressive picture makes its own."""

_DC_LENGTHS = (
    bytes.fromhex("00010501010101010100000000000000"),
    bytes.fromhex("00030101010101010101010000000000"),
)
"""How many codes of 1 to 16 bits: luminance (table K.3), chrominance (K.4)."""
_DC_VALUES = bytes(range(12))

_AC_LENGTHS = (
    bytes.fromhex("0002010303020403050504040000017d"),
    bytes.fromhex("00020102040403040705040400010277"),
)
_AC_VALUES = (
    bytes.fromhex("01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282"),
    bytes.fromhex(
        "000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f1"
    ),
)
"""The beginnings of tables K.5 and K.6; the other values follow by a rule."""


def _ac_values(beginning: bytes) -> bytes:
    """The whole table: every run and size that the beginning left out follows in rising order."""
    runs_and_sizes = (run << 4 | size for run in range(16) for size in range(1, 11))
    return beginning + bytes(code for code in runs_and_sizes if code not in beginning)


def _standard_tables() -> bytes:
    tables = b""
    for which in (0, 1):
        tables += bytes([which]) + _DC_LENGTHS[which] + _DC_VALUES
        tables += bytes([0x10 | which]) + _AC_LENGTHS[which] + _ac_values(_AC_VALUES[which])
    return b"\xff\xc4" + struct.pack(">H", len(tables) + 2) + tables


STANDARD_TABLES = _standard_tables()
"""A DHT segment, 420 bytes, with all four tables."""


def lacks_tables(data: memoryview) -> bool:
    """True for a sequential JPEG without any Huffman table before its first scan."""
    return _place(data) is not None


def with_tables(data: memoryview) -> bytes:
    """A copy of the JPEG with the standard tables before its first scan, for one that
    `lacks_tables`. One copy, as no decoder takes a picture in pieces."""
    at = _place(data)
    if at is None:
        raise ValueError("the JPEG has tables of its own, or no scan")
    return b"".join((data[:at], STANDARD_TABLES, data[at:]))


def _place(data: memoryview) -> int | None:
    """Where the marker of the first scan stands, if no table comes before it."""
    sequential = False
    try:
        for code, at, _ in jpeg_segments(data):
            if code == _DHT:
                return None
            sequential |= code in _SEQUENTIAL
            if code == _SOS:
                return at - 2 if sequential else None
    except PoisonError:
        pass
    return None
