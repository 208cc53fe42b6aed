"""Reads an AVIF: displayed size and turn, and the sizes that its AV1 pictures claim themselves.

libavif believes the container and the bitstream each for its part: an item said to be 10×10 pixels
is decoded at the size that its bitstream claims, and scaled. So the two must agree, for every
picture in the file.
Source: AVIF 1.1 (AOMedia), ISO/IEC 23008-12 (`ispe`, `irot`, `imir`, `grid`).
"""

from __future__ import annotations

from pipeline.av1_sequence import coded_size
from pipeline.avif_items import AvifItem, read_items
from pipeline.item import Header
from pipeline.orientation import UPRIGHT
from pipeline.probe_refusal import bad_header, refusal
from schemas.errors import Reason
from schemas.frame import Encoding

MAX_TILES = 256
"""Most tiles of a grid."""

SPARE_PIXELS = 1 << 20
"""What small pictures may hold beyond four times the primary one: alpha plane, thumbnail, tiles."""

_PICTURE, _GRID = b"av01", b"grid"

_TURNS = {
    (0, None): 1, (0, 1): 2, (2, None): 3, (0, 0): 4, (1, 0): 5, (3, None): 6, (3, 0): 7,
    (1, None): 8, (1, 1): 7, (3, 1): 5, (2, 0): 2, (2, 1): 4,
}  # fmt: skip
"""(Quarter turns against the clock, mirror: 0 swaps top and bottom, 1 left and right, in this
order) → EXIF orientation."""


def read_avif(data: memoryview, max_pixels: int) -> Header:
    """The header of an AVIF whose first box was checked.

    Args:
        data: the picture.
        max_pixels: most pixels of the picture and of any other one in the file.

    Raises:
        PoisonError: TRUNCATED_HEADER, BAD_HEADER, TOO_MANY_PIXELS, or UNSUPPORTED_ENCODING for
            animations and for pictures that are put together in other ways than by a grid.
    """
    number, items = read_items(data)
    primary = items[number]
    if primary.kind not in (_PICTURE, _GRID):
        raise refusal(Reason.UNSUPPORTED_ENCODING, f"AVIF with a primary item {primary.kind!r}")
    width, height = _size(primary)
    header = Header(Encoding.AVIF, width, height, _orientation(primary))
    if width * height > max_pixels or width < 1 or height < 1:
        return header  # refused for that by the probe
    _check_pictures(items, most=4 * width * height + SPARE_PIXELS, max_pixels=max_pixels)
    return header


def _size(item: AvifItem) -> tuple[int, int]:
    payload = item.property(b"ispe", 12)
    if payload is None:
        raise bad_header("a picture of the AVIF has no size")
    return int.from_bytes(payload[4:8], "big"), int.from_bytes(payload[8:12], "big")


def _orientation(item: AvifItem) -> int:
    turn, mirror = item.property(b"irot", 1), item.property(b"imir", 1)
    quarters = 0 if turn is None else turn[0] & 3
    return _TURNS.get((quarters, None if mirror is None else mirror[0] & 1), UPRIGHT)


def _check_pictures(items: dict[int, AvifItem], *, most: int, max_pixels: int) -> None:
    """Every picture is as large as its bitstream says, and all together are bounded."""
    total = largest = 0
    for item in items.values():
        if item.kind != _PICTURE:
            continue
        said, coded = _size(item), coded_size(item.data)
        if said != coded:
            raise bad_header(f"the AVIF says {said} pixels, the AV1 picture in it {coded}")
        pixels = said[0] * said[1]
        largest = max(largest, pixels)
        total += pixels
    for item in items.values():
        if item.kind == _GRID:
            total = max(total, _tiles(item) * largest)
    if largest > max_pixels or total > most:
        raise refusal(
            Reason.TOO_MANY_PIXELS, f"the pictures in the AVIF have {total} pixels together"
        )


def _tiles(item: AvifItem) -> int:
    """How many tiles a grid has; its size must be that of its item."""
    payload = item.data
    wide = 4 if len(payload) > 1 and payload[1] & 1 else 2
    if len(payload) < 4 + 2 * wide:
        raise bad_header("a grid of the AVIF is too short")
    size = (
        int.from_bytes(payload[4 : 4 + wide], "big"),
        int.from_bytes(payload[4 + wide : 4 + 2 * wide], "big"),
    )
    tiles = (payload[2] + 1) * (payload[3] + 1)
    if size != _size(item) or tiles > MAX_TILES:
        raise bad_header(f"a grid of the AVIF has {tiles} tiles and claims {size} pixels")
    return tiles
