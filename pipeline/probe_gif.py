"""Reads a GIF up to its first frame: the size of the screen, and where the frame lies in it.

Source: Graphics Interchange Format, version 89a (CompuServe, 1990).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pipeline.item import Header
from pipeline.probe_refusal import bad_header, truncated
from schemas.frame import Encoding

MAX_BLOCKS = 16_384
"""Most blocks before the first frame: a profile or comment of 4 MB."""

_SCREEN_AT, _TABLE_AT = 6, 13
_EXTENSION, _IMAGE = 0x21, 0x2C
_GRAPHIC_CONTROL = 0xF9
_HAS_TABLE, _INTERLACED, _HAS_TRANSPARENT = 0x80, 0x40, 0x01


@dataclass(frozen=True, slots=True)
class GifFrame:
    """The first frame of a GIF, in the file's own terms.

    Attributes:
        screen_width, screen_height: what is displayed, pixels.
        background: index of the screen's colour in the global table.
        screen_colours: the global table, RGB triples; empty without one.
        colours: the table that the frame uses, RGB triples.
        left, top, width, height: where the frame lies in the screen.
        interlaced: its rows come in four passes.
        transparent: the index that shows what lies behind, or None.
        codes_at: where its compressed indices begin.
    """

    screen_width: int
    screen_height: int
    background: int
    screen_colours: memoryview
    colours: memoryview
    left: int
    top: int
    width: int
    height: int
    interlaced: bool
    transparent: int | None
    codes_at: int


def read_gif(data: memoryview) -> Header:
    """The header of a GIF whose first six bytes were checked. The size is that of the screen.

    Raises:
        PoisonError: TRUNCATED_HEADER or BAD_HEADER.
    """
    frame = first_frame(data)
    return Header(Encoding.GIF, frame.screen_width, frame.screen_height)


def first_frame(data: memoryview) -> GifFrame:
    """The first frame. Later ones are not looked at. Raises as `read_gif`."""
    if len(data) < _TABLE_AT:
        raise truncated("the end of the GIF's screen descriptor")
    screen_width, screen_height, flags, background = struct.unpack_from("<HHBB", data, _SCREEN_AT)
    screen_colours, at = _table(data, _TABLE_AT, flags)
    at, transparent = _skip_extensions(data, at)
    if at + 10 > len(data):
        raise truncated("the GIF's first frame")
    left, top, width, height, flags = struct.unpack_from("<HHHHB", data, at + 1)
    if left + width > screen_width or top + height > screen_height:
        raise bad_header(
            f"the GIF's first frame ends at {left + width}×{top + height}, its screen at "
            f"{screen_width}×{screen_height}"
        )
    if width == 0 or height == 0:
        raise bad_header(f"the GIF's first frame is {width}×{height} pixels")
    colours, at = _table(data, at + 10, flags)
    if not len(colours) and not len(screen_colours):
        raise bad_header("the GIF has no colours")
    return GifFrame(
        screen_width=screen_width,
        screen_height=screen_height,
        background=background,
        screen_colours=screen_colours,
        colours=colours if len(colours) else screen_colours,
        left=left,
        top=top,
        width=width,
        height=height,
        interlaced=bool(flags & _INTERLACED),
        transparent=transparent,
        codes_at=at,
    )


def _table(data: memoryview, at: int, flags: int) -> tuple[memoryview, int]:
    """The colour table that the flags announce, and where it ends."""
    end = at + 3 * (2 << (flags & 7)) if flags & _HAS_TABLE else at
    if end > len(data):
        raise truncated("the end of a colour table of the GIF")
    return data[at:end], end


def _skip_extensions(data: memoryview, at: int) -> tuple[int, int | None]:
    """Where the first frame begins, and its transparent index."""
    transparent: int | None = None
    blocks = 0
    while True:
        if at + 2 > len(data):
            raise truncated("the GIF's first frame")
        if data[at] == _IMAGE:
            return at, transparent
        if data[at] != _EXTENSION:
            raise bad_header("the GIF has no frame")
        if data[at + 1] == _GRAPHIC_CONTROL and at + 8 <= len(data) and data[at + 2] == 4:
            transparent = data[at + 6] if data[at + 3] & _HAS_TRANSPARENT else None
        at += 2
        while True:
            blocks += 1
            if blocks > MAX_BLOCKS:
                raise bad_header(f"more than {MAX_BLOCKS} blocks before the GIF's first frame")
            if at >= len(data):
                raise truncated("the GIF's first frame")
            length = data[at]
            at += 1 + length
            if length == 0:
                break
