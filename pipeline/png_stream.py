"""Finds PNGs whose pixels unpack to far more than the picture has.

Decoders read what the picture needs and then unpack the rest to the end, for nothing: 1 MB of it
cost 3 s in each decoder, a record of 8 MB 24 s. How much a stream holds shows only by unpacking it,
so this is done once before a decoder sees it, and given up at the bound.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from pipeline.item import Item
from schemas.frame import Encoding

SPARE_BYTES = 64 * 1024 * 1024
"""What a stream may hold beyond the picture: a fifth of a second."""

_BEST_RATIO = 1032
"""Deflate makes at most so many bytes of one: 258 of a length and a distance, a bit each."""
_BITS_PER_PIXEL = 64
"""At most: four channels of 16 bits."""
_INPUT_BYTES, _OUTPUT_BYTES = 64 * 1024, 1024 * 1024
"""Of one step."""


def unpacks_too_far(item: Item) -> bool:
    """True for a PNG with more than `SPARE_BYTES` behind its pixels. Reads the chunks that the
    probe has walked; streams too short to hold so much are not unpacked. A damaged stream counts
    as short: decoders stop there too."""
    if item.header.encoding is not Encoding.PNG:
        return False
    row_bytes = item.header.coded_width * _BITS_PER_PIXEL // 8 + 1
    limit = row_bytes * item.header.coded_height + SPARE_BYTES
    data = item.frame.data
    if sum(len(payload) for payload in _pixel_chunks(data)) * _BEST_RATIO <= limit:
        return False
    return _unpacks_beyond(data, limit)


def _unpacks_beyond(data: memoryview, limit: int) -> bool:
    stream, unpacked = zlib.decompressobj(), 0
    try:
        for payload in _pixel_chunks(data):
            for at in range(0, len(payload), _INPUT_BYTES):
                piece: memoryview | bytes = payload[at : at + _INPUT_BYTES]
                while len(piece) and not stream.eof:
                    unpacked += len(stream.decompress(piece, _OUTPUT_BYTES))
                    if unpacked > limit:
                        return True
                    piece = stream.unconsumed_tail
    except zlib.error:
        return False
    return False


def _pixel_chunks(data: memoryview) -> Iterator[memoryview]:
    """The payloads of the IDAT chunks, in place."""
    at = 8
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">L4s", data, at)
        if name == b"IDAT":
            yield data[at + 8 : at + 8 + length]
        at += 12 + length
