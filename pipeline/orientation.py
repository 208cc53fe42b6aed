"""EXIF orientation: how a stored picture must be turned to be displayed.

Read once by the probe, applied by every decoder from the same number, so that no two parsers of a
hostile EXIF block can disagree about a picture's size.
Source: CIPA DC-008 (Exif 3.0), §4.6.5.1.6, tag 0x0112; TIFF 6.0, section 2 (image file directory).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

UPRIGHT = 1
"""The orientation that needs no turn, and that of a picture without the tag."""

_TAG = 0x0112
_TIFF_MAGIC = 42
_ENTRY_BYTES = 12


@dataclass(frozen=True, slots=True)
class Turn:
    """From stored to displayed: first `transpose` (swap rows and columns), then mirror.

    Attributes:
        transpose: rows become columns; orientations 5..8.
        mirror_x: left becomes right, in the displayed picture.
        mirror_y: top becomes bottom, in the displayed picture.
    """

    transpose: bool
    mirror_x: bool
    mirror_y: bool


_TURNS = {
    orientation: Turn(
        transpose=orientation >= 5,
        mirror_x=orientation in {2, 3, 6, 7},
        mirror_y=orientation in {3, 4, 7, 8},
    )
    for orientation in range(1, 9)
}


def turn_of(orientation: int) -> Turn:
    """The turn for an EXIF orientation 1..8. Raises KeyError for any other number."""
    return _TURNS[orientation]


def read_orientation(block: memoryview) -> int:
    """The orientation named by a TIFF block (EXIF without its `Exif\\0\\0` prefix), 1..8.

    Reads the first orientation entry of the first directory. Anything broken or out of range reads
    as `UPRIGHT`, because a picture with damaged metadata is still a picture. The type of the value
    is not looked at, as in OpenCV, whose reading is the reference.
    """
    if len(block) < 8:
        return UPRIGHT
    order = "<" if bytes(block[:2]) == b"II" else ">"
    magic, directory = struct.unpack_from(order + "HL", block, 2)
    if magic != _TIFF_MAGIC or directory + 2 > len(block):
        return UPRIGHT
    (entries,) = struct.unpack_from(order + "H", block, directory)
    first = directory + 2
    for at in range(first, first + entries * _ENTRY_BYTES, _ENTRY_BYTES):
        if at + 10 > len(block):
            break
        if struct.unpack_from(order + "H", block, at)[0] == _TAG:
            (value,) = struct.unpack_from(order + "H", block, at + 8)
            return value if value in _TURNS else UPRIGHT
    return UPRIGHT
