"""Reads a PNG's header: size and orientation.

Source: W3C PNG specification, third edition (5.3 chunk layout, 11.2.1 IHDR, 11.3.4.5 eXIf).
"""

from __future__ import annotations

import struct
import zlib

from pipeline.item import Header
from pipeline.orientation import UPRIGHT, read_orientation
from pipeline.probe_refusal import bad_header, refusal, truncated
from schemas.errors import Reason
from schemas.frame import Encoding

MAX_CHUNKS = 16_384
"""Most chunks of a picture: encoders write one per 8 KiB or more. The walk over them is bounded."""

MAX_PACKED_BYTES = 128 * 1024
"""Most bytes of compressed texts and profiles, all together. Decoders unpack every one, a thousand
times its size at most, and throw it away: 900 texts of 8 KB cost forty seconds. A colour profile
has some kilobytes; large texts (XMP) are stored as they are."""

_FIRST_CHUNK = 8
"""The signature's length."""
_IHDR_BYTES = 13
_PACKED = {b"zTXt", b"iTXt", b"iCCP"}
_MAX_KEYWORD = 79
_BIT_DEPTHS = {0: {1, 2, 4, 8, 16}, 2: {8, 16}, 3: {1, 2, 4, 8}, 4: {8, 16}, 6: {8, 16}}
"""Colour type → bits per sample that the format allows."""


def read_png(data: memoryview) -> Header:
    """The header of a PNG whose signature was checked.

    Raises:
        PoisonError: TRUNCATED_HEADER (also where a later chunk runs past the end), BAD_HEADER,
            TOO_MUCH_METADATA, or UNSUPPORTED_ENCODING for an animation.
    """
    if len(data) < _FIRST_CHUNK + 8 + _IHDR_BYTES + 4:
        raise truncated("the end of the PNG's IHDR chunk")
    length, name = struct.unpack_from(">L4s", data, _FIRST_CHUNK)
    if name != b"IHDR" or length != _IHDR_BYTES:
        raise bad_header("the PNG does not start with an IHDR chunk")
    ihdr = _FIRST_CHUNK + 8
    width, height, depth, colour, compression, filtering, interlace, crc = struct.unpack_from(
        ">LLBBBBBL", data, ihdr
    )
    if zlib.crc32(data[ihdr - 4 : ihdr + _IHDR_BYTES]) != crc:
        raise bad_header("the checksum of the PNG's IHDR chunk is wrong")
    if depth not in _BIT_DEPTHS.get(colour, ()):
        raise bad_header(f"PNG colour type {colour} with {depth} bits does not exist")
    if compression or filtering or interlace > 1 or max(width, height) >= 1 << 31:
        raise bad_header("the PNG's IHDR chunk holds values that the format does not have")
    return Header(Encoding.PNG, width, height, _walk(data, ihdr + _IHDR_BYTES + 4))


def _walk(data: memoryview, at: int) -> int:
    """Walks the chunks by their lengths, without reading pixels; the orientation of the eXIf chunk.

    The whole list is checked because OpenCV 5 allocates and clears what a chunk claims before it
    looks whether the bytes are there: 400 bytes can cost 4 GB and 13 s. What it would refuse in the
    end is refused here at once.
    """
    orientation: int | None = None
    pixels_seen = False
    packed = 0
    for _ in range(MAX_CHUNKS):
        if at + 8 > len(data):
            raise truncated("the PNG's IEND chunk")
        length, name = struct.unpack_from(">L4s", data, at)
        end = at + 12 + length
        if end > len(data):
            raise truncated(f"the end of a PNG chunk of {length} bytes")
        if name == b"IEND":
            if not pixels_seen:
                # OpenCV 5 would read on behind the end, and allocate what it finds claimed there.
                raise bad_header("the PNG ends before its pixels")
            return orientation or UPRIGHT
        if name == b"IDAT":
            pixels_seen = True
        elif name == b"acTL" and not pixels_seen:
            raise refusal(Reason.UNSUPPORTED_ENCODING, "animated PNG (a record holds one frame)")
        elif name == b"eXIf" and orientation is None:
            orientation = read_orientation(data[at + 8 : end - 4])
        elif name in _PACKED and _is_packed(name, data[at + 8 : end - 4]):
            packed += length
            if packed > MAX_PACKED_BYTES:
                raise refusal(
                    Reason.TOO_MUCH_METADATA,
                    f"the PNG has more than {MAX_PACKED_BYTES} bytes of compressed texts and "
                    "profiles",
                )
        at = end
    raise bad_header(f"more than {MAX_CHUNKS} chunks in the PNG")


def _is_packed(name: bytes, payload: memoryview) -> bool:
    """Whether a decoder would unpack the chunk. An iTXt says so behind its keyword; one without a
    keyword counts as packed."""
    if name != b"iTXt":
        return True
    keyword, _, rest = bytes(payload[: _MAX_KEYWORD + 2]).partition(b"\0")
    return rest[:1] != b"\0" or len(keyword) > _MAX_KEYWORD
