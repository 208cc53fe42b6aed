"""Reads a BMP's header: size, and whether its rows are there.

Source: Microsoft's descriptions of BITMAPFILEHEADER, BITMAPCOREHEADER, BITMAPINFOHEADER and
BITMAPV5HEADER; "Bitmap Compression" for run lengths.
"""

from __future__ import annotations

import struct

from pipeline.item import Header
from pipeline.probe_refusal import bad_header, refusal, truncated
from schemas.errors import Reason
from schemas.frame import Encoding

_FILE_HEADER_BYTES = 14
_CORE_BYTES, _INFO_BYTES, _MAX_INFO_BYTES = 12, 40, 124
_RGB, _RLE8, _RLE4, _BITFIELDS = 0, 1, 2, 3
_KINDS = {
    *((bits, _RGB) for bits in (1, 4, 8, 16, 24, 32)),
    (8, _RLE8),
    (4, _RLE4),
    (16, _BITFIELDS),
    (32, _BITFIELDS),
}
"""Bits per pixel and compression of what a decoder here reads."""
_MASKS = {
    16: {(0x7C00, 0x3E0, 0x1F), (0xF800, 0x7E0, 0x1F)},
    32: {(0xFF0000, 0xFF00, 0xFF)},
}
"""Red, green and blue. OpenCV reads others as if they were these."""
_MAX_COLOURS = 256


def read_bmp(data: memoryview, max_pixels: int) -> Header:
    """The header of a BMP whose first two bytes were checked. A negative height only says that the
    top row comes first. The rows of one with more than `max_pixels` are not looked for.

    Raises:
        PoisonError: TRUNCATED_HEADER (also where uncompressed rows are missing), BAD_HEADER, or
            UNSUPPORTED_ENCODING for kinds that no decoder here reads.
    """
    if len(data) < _FILE_HEADER_BYTES + 4:
        raise truncated("the BMP's information header")
    pixels_at, info_bytes = struct.unpack_from("<LL", data, 10)
    if _FILE_HEADER_BYTES + info_bytes > len(data) and info_bytes <= _MAX_INFO_BYTES:
        raise truncated("the end of the BMP's information header")
    if info_bytes == _CORE_BYTES:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        compression = _RGB
    elif _INFO_BYTES <= info_bytes <= _MAX_INFO_BYTES:
        width, height, _, bits, compression = struct.unpack_from("<llHHL", data, 18)
        _check_colours(data, bits, compression, info_bytes)
    else:
        raise bad_header(f"the BMP's information header has {info_bytes} bytes")
    if (bits, compression) not in _KINDS:
        raise refusal(
            Reason.UNSUPPORTED_ENCODING,
            f"BMP with {bits} bits per pixel, compression {compression}",
        )
    height = abs(height)
    if width * height <= max_pixels and compression in (_RGB, _BITFIELDS):
        _check_rows(data, pixels_at, width * bits, height)
    return Header(Encoding.BMP, width, height)


def _check_colours(data: memoryview, bits: int, compression: int, info_bytes: int) -> None:
    (colours,) = struct.unpack_from("<L", data, 46)
    if bits <= 8 and colours > _MAX_COLOURS:
        raise bad_header(f"the BMP claims {colours} colours")
    if compression != _BITFIELDS or bits not in _MASKS:
        return
    if len(data) < 66:
        raise truncated("the BMP's colour masks")
    if struct.unpack_from("<LLL", data, 54) not in _MASKS[bits]:
        raise refusal(Reason.UNSUPPORTED_ENCODING, f"BMP with {bits} bits and unusual colour masks")
    if bits == 16 and info_bytes != _INFO_BYTES:  # OpenCV looks for the masks behind the header
        raise refusal(Reason.UNSUPPORTED_ENCODING, "BMP with 16 bits and masks inside its header")


def _check_rows(data: memoryview, at: int, row_bits: int, rows: int) -> None:
    """Uncompressed rows are padded to four bytes and must all be there."""
    if at + (row_bits + 31) // 32 * 4 * rows > len(data):
        raise truncated("the end of the BMP's rows")
