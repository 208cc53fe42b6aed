"""Reads a WebP's header: size and orientation.

Source: RFC 9649 (WebP container, VP8L bitstream), RFC 6386 §9.1 (VP8 frame header).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pipeline.item import Header
from pipeline.orientation import UPRIGHT, read_orientation
from pipeline.probe_refusal import bad_header, refusal, truncated
from schemas.errors import Reason
from schemas.frame import Encoding

MAX_CHUNKS = 4096
"""Most chunks that are searched for the picture and its orientation."""

EXIF_FLAG = 0x08
"""Bit of the VP8X flags (byte 20 of the file): the file has an EXIF chunk."""

_FIRST_CHUNK = 12
_ANIMATION_FLAG = 0x02
_SIDE_MASK = 0x3FFF
"""Sides of VP8 and VP8L pictures have 14 bits."""


def read_webp(data: memoryview) -> Header:
    """The header of a WebP whose RIFF and WEBP marks were checked.

    Raises:
        PoisonError: TRUNCATED_HEADER, BAD_HEADER, or UNSUPPORTED_ENCODING for an animation.
    """
    if len(data) < _FIRST_CHUNK + 8:
        raise truncated("the WebP's first chunk")
    name = bytes(data[_FIRST_CHUNK : _FIRST_CHUNK + 4])
    if name == b"VP8X":
        return _read_extended(data)
    width, height = _picture_size(name, data[_FIRST_CHUNK + 8 :])
    return Header(Encoding.WEBP, width, height)


def _picture_size(name: bytes, payload: memoryview) -> tuple[int, int]:
    """Width and height in pixels from the head of a picture chunk."""
    if name == b"VP8 ":
        if len(payload) < 10:
            raise truncated("the size in the WebP's VP8 frame")
        if payload[0] & 1 or bytes(payload[3:6]) != b"\x9d\x01\x2a":
            raise bad_header("the WebP's VP8 frame is not a key frame")
        width, height = struct.unpack_from("<HH", payload, 6)
        return width & _SIDE_MASK, height & _SIDE_MASK
    if name == b"VP8L":
        if len(payload) < 5:
            raise truncated("the size in the WebP's VP8L picture")
        mark, bits = struct.unpack_from("<BL", payload)
        if mark != 0x2F or bits >> 29:
            raise bad_header("the WebP's VP8L picture has a wrong mark or version")
        return (bits & _SIDE_MASK) + 1, (bits >> 14 & _SIDE_MASK) + 1
    raise bad_header("the WebP holds no picture where one must stand")


def _read_extended(data: memoryview) -> Header:
    """A file with features: the canvas is given first, the picture must fill it."""
    if len(data) < _FIRST_CHUNK + 18:
        raise truncated("the WebP's canvas size")
    length, flags = struct.unpack_from("<LB", data, _FIRST_CHUNK + 4)
    if length < 10:
        raise bad_header("the WebP's VP8X chunk is too short")
    if flags & _ANIMATION_FLAG:
        raise refusal(Reason.UNSUPPORTED_ENCODING, "animated WebP (a record holds one frame)")
    canvas = (_u24(data, _FIRST_CHUNK + 12) + 1, _u24(data, _FIRST_CHUNK + 15) + 1)
    size: tuple[int, int] | None = None
    orientation = None if flags & EXIF_FLAG else UPRIGHT
    for name, payload, whole in _chunks(data, _FIRST_CHUNK + 8 + length + length % 2):
        if size is None and name in (b"VP8 ", b"VP8L"):
            size = _picture_size(name, payload)
        elif orientation is None and name == b"EXIF" and whole:
            orientation = read_orientation(payload)
        if size is not None and orientation is not None:
            break
    if size is None:
        raise truncated("the WebP's picture")
    if size != canvas:
        raise bad_header(f"the WebP's canvas is {canvas} pixels, its picture {size}")
    return Header(Encoding.WEBP, *size, orientation or UPRIGHT)


def _u24(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 3], "little")


def _chunks(data: memoryview, at: int) -> Iterator[tuple[bytes, memoryview, bool]]:
    """Name, payload (cut where the bytes end) and whether it is whole, for each chunk."""
    for _ in range(MAX_CHUNKS):
        if at + 8 > len(data):
            return
        name, length = struct.unpack_from("<4sL", data, at)
        end = at + 8 + length
        yield name, data[at + 8 : end], end <= len(data)
        at = end + length % 2
