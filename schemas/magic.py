"""Formats told by their first bytes: those a bare record may have, and those refused by name."""

from __future__ import annotations

from schemas.frame import Encoding

_BMP_INFO_SIZES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
"""Lengths of the known BMP information headers. `BM` alone would claim ordinary text."""

_FIRST_BYTES = frozenset(b"\xff\x89RIMBG\0")
"""Of the accepted formats. Nearly every record is an envelope and is passed by with one look."""

_STARTS = {
    b"\xff\xd8\xff": Encoding.JPEG,
    b"\x89PNG\r\n\x1a\n": Encoding.PNG,
    b"II*\x00": Encoding.TIFF,
    b"MM\x00*": Encoding.TIFF,
    b"II+\x00": Encoding.TIFF,  # BigTIFF
    b"MM\x00+": Encoding.TIFF,
    b"GIF87a": Encoding.GIF,
    b"GIF89a": Encoding.GIF,
}

_REFUSED_STARTS = {
    b"\xff\x0a": "JPEG XL",
    b"\x00\x00\x00\x0cJXL ": "JPEG XL",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"\x00\x00\x00\x0cjP  ": "JPEG 2000",
    b"\x00\x00\x01\x00": "ICO",
    b"8BPS": "Photoshop",
    b"v/1\x01": "OpenEXR",
    b"P5\n": "PGM",
    b"P6\n": "PPM",
    b"<svg": "SVG",
    b"%PDF": "PDF",
    b"FLV\x01": "FLV",
    b"\x00\x00\x00\x01": "an H.264 or H.265 elementary stream",
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "ZIP",
}

_BRANDS = {
    b"heic": "HEIC",
    b"heix": "HEIC",
    b"hevc": "HEIC",
    b"heim": "HEIC",
    b"mif1": "HEIF",
    b"msf1": "HEIF",
    b"qt  ": "QuickTime",
}
"""Major brands of ISO base media files (ISO/IEC 14496-12, `ftyp`); any other is called MP4."""


_AVIF_BRANDS = (b"avif", b"avis")
_HEAD_BYTES = 64
"""Of an AVIF whose first brand is not its own: as far as its list of brands is looked at."""
_TS_PACKET, _TS_SYNC = 188, 0x47
"""Length and first byte of a packet of an MPEG transport stream (ISO/IEC 13818-1)."""


def sniff(data: memoryview) -> Encoding | None:
    """The encoded format that `data` (unsigned bytes) begins with, or None.

    Looks at the first 64 bytes only; a picture that begins well may still be broken.
    """
    if not data or data[0] not in _FIRST_BYTES:
        return None
    head = bytes(data[:_HEAD_BYTES])
    for start, encoding in _STARTS.items():
        if head.startswith(start):
            return encoding
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return Encoding.WEBP
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_INFO_SIZES:
        return Encoding.BMP
    if _is_avif(head):
        return Encoding.AVIF
    return None


def _is_avif(head: bytes) -> bool:
    """Whether the file names AVIF as its brand, or, being a HEIF, as one of its brands."""
    if head[4:8] != b"ftyp":
        return False
    if head[8:12] in _AVIF_BRANDS:
        return True
    end = min(int.from_bytes(head[:4], "big"), len(head))
    brands = (head[at : at + 4] for at in range(16, end - 3, 4))
    return head[8:12] in (b"mif1", b"msf1") and any(brand in _AVIF_BRANDS for brand in brands)


def sniff_segment(data: memoryview) -> Encoding | None:
    """The container of video that `data` (unsigned bytes) begins with, or None.

    An elementary stream is not told by its first bytes: many things begin with three zeros.
    """
    head = bytes(data[:12])
    if head[4:8] == b"ftyp" and head[8:12] not in _BRANDS:
        return Encoding.MP4
    if head.startswith(b"\x1aE\xdf\xa3"):
        return Encoding.MKV
    if len(data) > 2 * _TS_PACKET and all(
        data[at] == _TS_SYNC for at in (0, _TS_PACKET, 2 * _TS_PACKET)
    ):
        return Encoding.TS
    return None


def refused_format(data: memoryview) -> str | None:
    """The name of a known format that is not accepted (HEIC, PDF, MP4…), or None.

    For the detail of a dead letter: it tells the producer what to convert from.
    """
    head = bytes(data[:12])
    if head[4:8] == b"ftyp" and len(head) == 12:
        return _BRANDS.get(head[8:12], "MP4")
    if head.startswith(b"RIFF") and head[8:12] == b"AVI ":
        return "AVI"
    for start, name in _REFUSED_STARTS.items():
        if head.startswith(start):
            return name
    return None
