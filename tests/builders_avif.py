"""An AVIF that is put together from tiles, which no library here writes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from pipeline.avif_items import AvifItem, read_items
from tests.builders_pictures import Pixels

_KEPT = (b"pixi", b"av1C", b"colr")
"""Properties that the tiles take along; `av1C` is essential."""


def box(name: bytes, payload: bytes) -> bytes:
    return struct.pack(">L", len(payload) + 8) + name + payload


def grid_avif(pixels: Pixels, encode: Callable[[Pixels], bytes], side: int = 64) -> bytes:
    """A grid of square tiles, each an AVIF that `encode` made, the last ones padded."""
    height, width = pixels.shape[:2]
    rows, columns = -(-height // side), -(-width // side)
    padding = ((0, rows * side - height), (0, columns * side - width), (0, 0))
    padded = np.pad(pixels, padding, mode="edge")
    tiles = [
        _primary(encode(np.ascontiguousarray(padded[y : y + side, x : x + side])))
        for y in range(0, rows * side, side)
        for x in range(0, columns * side, side)
    ]
    grid = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, width, height)
    blobs = [grid, *(bytes(tile.data) for tile in tiles)]
    kept = [(name, payload) for name, payload in tiles[0].properties if name in _KEPT]
    sizes = [struct.pack(">LLL", 0, *size) for size in ((width, height), (side, side))]
    properties = [*(box(b"ispe", size) for size in sizes), *(box(n, bytes(p)) for n, p in kept)]
    of_tile = [2, *(3 + i | (0x80 if name == b"av1C" else 0) for i, (name, _) in enumerate(kept))]
    of_grid = [1, *(3 + i for i, (name, _) in enumerate(kept) if name != b"av1C")]
    given = [of_grid, *[of_tile] * len(tiles)]
    numbers = range(1, len(blobs) + 1)
    parts = [
        box(b"hdlr", struct.pack(">LL4s12sB", 0, 0, b"pict", bytes(12), 0)),
        box(b"pitm", struct.pack(">LH", 0, 1)),
        box(b"iloc", _places(blobs)),
        box(b"iinf", struct.pack(">LH", 0, len(blobs)) + b"".join(map(_entry, numbers))),
        box(b"iref", bytes(4) + box(b"dimg", struct.pack(
            f">HH{len(tiles)}H", 1, len(tiles), *numbers[1:]
        ))),
        box(b"iprp", box(b"ipco", b"".join(properties)) + box(b"ipma", _given(given))),
        box(b"idat", b"".join(blobs)),
    ]  # fmt: skip
    return box(b"ftyp", b"avif\0\0\0\0avifmif1miaf") + box(b"meta", bytes(4) + b"".join(parts))


def _primary(data: bytes) -> AvifItem:
    number, items = read_items(memoryview(data))
    return items[number]


def _entry(number: int) -> bytes:
    kind = b"grid" if number == 1 else b"av01"
    return box(b"infe", struct.pack(">LHH4sB", 2 << 24, number, 0, kind, 0))


def _places(blobs: list[bytes]) -> bytes:
    """Each item in one piece of the `idat` box."""
    places, at = struct.pack(">LBBH", 1 << 24, 0x44, 0, len(blobs)), 0
    for number, blob in enumerate(blobs, 1):
        places += struct.pack(">HHHHLL", number, 1, 0, 1, at, len(blob))
        at += len(blob)
    return places


def _given(given: list[list[int]]) -> bytes:
    associations = struct.pack(">LL", 0, len(given))
    for number, indices in enumerate(given, 1):
        associations += struct.pack(">HB", number, len(indices)) + bytes(indices)
    return associations
