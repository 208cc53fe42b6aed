"""Reads a JPEG's header: size, orientation, and the number of scans where that can hurt.

Source: ITU-T T.81, annex B (marker segments); CIPA DC-008 for the EXIF segment.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Iterator
from functools import lru_cache

from msgspec import Struct

from pipeline.item import Header
from pipeline.orientation import UPRIGHT, read_orientation
from pipeline.probe_refusal import bad_header, refusal, truncated
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding

SCANS_AT_FULL_SIZE = 20
"""Most scans of a picture of `max_pixels`; smaller ones may have more in proportion. Encoders write
about ten. A pass over 50 million pixels costs some 60 ms, however few bytes the scan has."""

REMEMBERED_BYTES = 2048
"""How far into a picture its first scan is looked for, to know its header again. Larger headers
carry a thumbnail or a profile, and differ from picture to picture."""
REMEMBERED = 256
"""Headers that are known again."""

MAX_SEGMENTS = 4096
"""Most marker segments that are read. A picture has a few dozen (an ICC profile at most 255);
the bound keeps hostile records of millions of empty segments cheap."""

_SOI, _EOI, _SOS, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_NOT_FRAMES = {0xC4, 0xC8, 0xCC}
"""DHT, JPG and DAC lie among the start-of-frame markers."""
_HIERARCHICAL = {0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF}
_PROGRESSIVE = {0xC2, 0xCA}
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
_PLAIN = frozenset(range(0xC0, 0xFF)) - _WITHOUT_LENGTH - {_SOI, _EOI}
"""Markers of segments with a length, and with nothing special to them here."""
_SEGMENT = struct.Struct(">BBH")
"""0xff, the marker's code, the segment's length."""
_FRAME = struct.Struct(">HBHHB")
"""A start-of-frame segment: length, bits per sample, height, width, components."""
_EXIF = b"Exif\0\0"
_FRAMES = frozenset(range(0xC0, 0xD0)) - _NOT_FRAMES
_TELLING = _FRAMES | {_APP1}
"""Markers of the segments that the header is read from, besides the scan's."""

# `re` searches a memoryview in place; `\xff\xff` are fill bytes, `\xff\x00` is stuffed data.
_SCAN = re.compile(rb"\xff\xda")
_MARKER = re.compile(rb"\xff[^\x00\xff]")
_MARKER_IN_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")


class _Frame(Struct, frozen=True):
    """A start-of-frame segment: size in pixels, components 1..255."""

    width: int
    height: int
    components: int
    progressive: bool


def read_jpeg(data: memoryview, max_scans: int, max_pixels: int) -> Header:
    """The header of a JPEG whose first two bytes (start of image) were checked.

    Args:
        data: the picture.
        max_scans: most scans, where each costs a pass over the picture.
        max_pixels: most pixels of a picture with `SCANS_AT_FULL_SIZE` scans.

    Raises:
        PoisonError: TRUNCATED_HEADER, BAD_HEADER, ZERO_SIZE, TOO_MANY_SCANS, or
            UNSUPPORTED_ENCODING for kinds that no decoder here reads.
    """
    scan = _SCAN.search(data, 2, REMEMBERED_BYTES)
    if scan is not None:
        # Up to the end of what may be the first scan's header.
        end = scan.end() + int.from_bytes(data[scan.end() : scan.end() + 2])
        header = _remembered(bytes(data[:end])) if end <= REMEMBERED_BYTES else None
        if header is not None:
            return header
    return _read(data, max_scans, max_pixels)


@lru_cache(maxsize=REMEMBERED)
def _remembered(start: bytes) -> Header | None:
    """The header of any JPEG that begins with these bytes, or None where they do not say all. A
    camera's pictures share theirs, and a look at them costs a fifth of reading them."""
    data = memoryview(start)
    try:
        header, frame, at, _ = _first_scan(data)
    except PoisonError:
        return None
    return header if _is_only_scan(data, at, frame) else None


def _read(data: memoryview, max_scans: int, max_pixels: int) -> Header:
    header, frame, at, end = _first_scan(data)
    if end < at + 3:
        raise bad_header("the header of the JPEG's first scan is empty")
    if not _is_only_scan(data, at, frame):
        # A larger picture than `max_pixels` is refused for that.
        pixels = min(max(frame.width * frame.height, 1), max_pixels)
        _check_scans(data, end, min(max_scans, SCANS_AT_FULL_SIZE * max_pixels // pixels))
    return header


def _first_scan(data: memoryview) -> tuple[Header, _Frame, int, int]:
    """What stands before the first scan, and where the scan's own header begins and ends."""
    frame: _Frame | None = None
    orientation: int | None = None
    for code, at, end in jpeg_segments(data, _TELLING):
        if code == _SOS:
            if frame is None:
                raise bad_header("the JPEG's scan starts before its size is given")
            header = Header(Encoding.JPEG, frame.width, frame.height, orientation or UPRIGHT)
            return header, frame, at, end
        if code in _FRAMES:
            if frame is not None:
                raise bad_header("the JPEG gives its size twice")
            frame = _read_frame(data, at, code)
        elif orientation is None and bytes(data[at + 2 : at + 8]) == _EXIF:
            orientation = read_orientation(data[at + 8 : end])
    raise bad_header(f"more than {MAX_SEGMENTS} segments before the JPEG's first scan")


def jpeg_components(data: memoryview) -> int:
    """How many colour components a JPEG that passed the probe has: 1 grey, 3 colour, 4 CMYK."""
    for code, at, _ in jpeg_segments(data, _FRAMES):
        if code in _FRAMES:
            return _read_frame(data, at, code).components
    raise bad_header("the JPEG has no frame")


def jpeg_segments(
    data: memoryview, wanted: Container[int] = _PLAIN
) -> Iterator[tuple[int, int, int]]:
    """Marker code, start (of the length field) and end of each segment whose code is wanted, and
    the first scan's header as the last. MAX_SEGMENTS are looked at; each lies inside `data`."""
    at, size, segment = 2, len(data), _SEGMENT.unpack_from
    for _ in range(MAX_SEGMENTS):
        # Nearly every segment begins where the one before it ends, and lies inside the data.
        if at + 4 <= size:
            mark, code, length = segment(data, at)
            end = at + 2 + length
            if mark == 0xFF and code in _PLAIN and length >= 2 and end <= size:
                if code == _SOS:
                    yield code, at + 2, end
                    return
                if code in wanted:
                    yield code, at + 2, end
                at = end
                continue
        code, at = _next_marker(data, at)
        if code in _WITHOUT_LENGTH:
            continue
        if code in (_SOI, _EOI):
            raise bad_header("a start or end marker stands inside the JPEG's header")
        end = _segment_end(data, at)
        if code in wanted or code == _SOS:
            yield code, at, end
        if code == _SOS:
            return
        at = end


def _next_marker(data: memoryview, at: int) -> tuple[int, int]:
    """The code of the next marker at or after `at`, and where its segment starts. Bytes between
    segments are skipped, as libjpeg does."""
    found = _MARKER.search(data, at)
    if found is None:
        raise truncated("the JPEG's first scan")
    return data[found.end() - 1], found.end()


def _segment_end(data: memoryview, at: int) -> int:
    if at + 2 > len(data):
        raise truncated("the length of a JPEG segment")
    (length,) = struct.unpack_from(">H", data, at)
    if length < 2:
        raise bad_header(f"a JPEG segment claims a length of {length}")
    if at + length > len(data):
        raise truncated("the end of a JPEG segment")
    return at + length


def _read_frame(data: memoryview, at: int, code: int) -> _Frame:
    """A start-of-frame segment whose length field stands at `at` and lies inside `data`."""
    if code in _HIERARCHICAL:
        raise refusal(Reason.UNSUPPORTED_ENCODING, "hierarchical JPEG")
    if at + _FRAME.size > len(data):
        raise bad_header("the JPEG's frame segment is too short")
    length, precision, height, width, components = _FRAME.unpack_from(data, at)
    if length < _FRAME.size:
        raise bad_header("the JPEG's frame segment is too short")
    if components == 0 or length != 8 + 3 * components:
        raise bad_header("the JPEG's frame segment does not fit its components")
    if precision != 8:
        raise refusal(Reason.UNSUPPORTED_ENCODING, f"JPEG with {precision} bits per sample")
    return _Frame(width, height, components, code in _PROGRESSIVE)


def _is_only_scan(data: memoryview, at: int, frame: _Frame) -> bool:
    """Whether a decoder reads this scan alone, whose header begins at `at`: it holds all components
    of a sequential JPEG."""
    return not frame.progressive and at + 2 < len(data) and data[at + 2] >= frame.components


def _check_scans(data: memoryview, at: int, max_scans: int) -> None:
    """Each scan makes a decoder pass over the whole picture once more: refuse a time bomb.

    Only a picture of several scans pays for this search, which begins behind the header of its
    first, at `at`.
    """
    scans = 1
    for _ in range(MAX_SEGMENTS):
        found = _MARKER_IN_SCAN.search(data, at)
        if found is None or data[found.end() - 1] == _EOI:
            return
        at = found.end()
        if data[at - 1] == _SOS:
            scans += 1
            if scans > max_scans:
                raise refusal(Reason.TOO_MANY_SCANS, f"the JPEG has more than {max_scans} scans")
        if at + 2 > len(data):
            return
        at += struct.unpack_from(">H", data, at)[0]
    raise bad_header(f"more than {MAX_SEGMENTS} segments between the JPEG's scans")
