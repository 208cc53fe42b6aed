"""Repairs a JPEG that lacks only its end marker, as some cameras send them.

OpenCV and libjpeg-turbo refuse such a picture, and take one that was cut in half once an end
marker is put behind it (the rest turns grey). So the marker may only be put where nothing else is
missing, which the bytes do not say by themselves. A decoder that has all its blocks ignores stray
bytes before the end marker, and one that lacks some reads them as pixels: two small decodes, with
and without stray bytes, are equal only for a whole picture.
"""

from __future__ import annotations

import re

import cv2
import numpy as np

_END = b"\xff\xd9"
_TAIL_BYTES = 64
"""Where an end marker is looked for first: behind it there are at most a few bytes, as a rule."""

_START_OF_SCAN = re.compile(rb"\xff\xda")
_END_OF_IMAGE = re.compile(rb"\xff\xd9")

_STRAY = bytes(range(0x35, 0xF5, 3)) * 4
"""Entropy-coded data of no meaning: any bytes but 0xFF, enough for some blocks."""

_PROGRESSIVE = re.compile(rb"\xff[\xc2\xca]\0")
_SMALL = cv2.IMREAD_REDUCED_GRAYSCALE_8
"""Enough for a sequential picture, whose lost blocks lose their mean as well."""
_FULL = cv2.IMREAD_GRAYSCALE
"""A progressive picture has its means from the first scan; later scans show at full size only."""


def lacks_end(data: memoryview) -> bool:
    """True when no end marker follows the start of a JPEG's first scan. Searched in place."""
    if _END_OF_IMAGE.search(data[-_TAIL_BYTES:]):
        return False
    scan = _START_OF_SCAN.search(data)
    return scan is not None and _END_OF_IMAGE.search(data, scan.end()) is None


def with_end(data: memoryview) -> bytes | None:
    """A copy of the JPEG with its end marker, or None when more than the marker is missing.

    Only for pictures that `lacks_end`. A progressive picture cut exactly between two scans counts
    as whole: its later, finer scans leave no trace.
    """
    scan = _START_OF_SCAN.search(data)
    progressive = scan is not None and _PROGRESSIVE.search(data, 0, scan.start()) is not None
    flags = (_FULL if progressive else _SMALL) | cv2.IMREAD_IGNORE_ORIENTATION
    body = bytes(data).rstrip(b"\xff")  # half of the marker may have come
    whole = body + _END
    shown, strayed = (
        cv2.imdecode(np.frombuffer(picture, np.uint8), flags)
        for picture in (whole, body + _STRAY + _END)
    )
    if shown is None or strayed is None or not np.array_equal(shown, strayed):
        return None
    return whole
