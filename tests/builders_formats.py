"""BMP, TIFF, GIF and AVIF pictures of every kind that the worker must read, made in memory.

What Pillow and OpenCV do not write is put together here.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from schemas.frame import Encoding
from tests.builders_avif import grid_avif
from tests.builders_pictures import Pixels, rgb_image, save, sixteen_bit, with_alpha

# --- BMP ----------------------------------------------------------------------------------------


def bmp(
    rows: Sequence[bytes],
    size: tuple[int, int],
    bits: int,
    *,
    compression: int = 0,
    colours: bytes = b"",
    masks: bytes = b"",
) -> bytes:
    """A BMP of rows that are packed already, in the order of the file; `size` may have a negative
    height. With `compression` 1 or 2 the rows are its codes."""
    padded = [row + bytes(-len(row) % 4) for row in rows] if compression in (0, 3) else rows
    body = b"".join(padded)
    head = struct.pack(
        "<LllHHLLllLL", 40, *size, 1, bits, compression, len(body), 0, 0, len(colours) // 4, 0
    )
    offset = 14 + len(head) + len(masks) + len(colours)
    file_head = b"BM" + struct.pack("<LLL", offset + len(body), 0, offset)
    return file_head + head + masks + colours + body


def _colours(image: Image.Image) -> bytes:
    """Pillow's palette as BMP lists it."""
    table = np.zeros((256, 4), np.uint8)
    entries = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
    table[: len(entries), :3] = entries[:, ::-1]
    return table.tobytes()


def _indexed(pixels: Pixels, colours: int) -> tuple[npt.NDArray[np.uint8], bytes]:
    """Indices, bottom row first, and the palette."""
    image = rgb_image(pixels).quantize(colours)
    return np.asarray(image)[::-1], _colours(image)


def bmp_rle8(pixels: Pixels) -> bytes:
    """Runs where there are any, literal stretches where not, and a jump over nothing."""
    indices, colours = _indexed(pixels, 200)
    rows = [_runs(row.tolist(), bytes) + b"\0\0" for row in indices]
    rows[-1] = rows[-1][:-2] + b"\0\1"
    return bmp(rows, size_of(pixels), 8, compression=1, colours=colours)


def bmp_rle4(pixels: Pixels) -> bytes:
    indices, colours = _indexed(pixels, 16)

    def nibbles(part: Sequence[int]) -> bytes:
        even = [*part, 0][: len(part) + len(part) % 2]
        return bytes(a << 4 | b for a, b in zip(even[::2], even[1::2], strict=True))

    rows = [_runs(row.tolist(), nibbles, spread=0x11) + b"\0\0" for row in indices]
    rows[-1] = rows[-1][:-2] + b"\0\1"
    return bmp(rows, size_of(pixels), 4, compression=2, colours=colours[:64])


def _runs(row: list[int], pack: Callable[[Sequence[int]], bytes], spread: int = 1) -> bytes:
    out, at = b"", 0
    while at < len(row):
        length = 1
        while at + length < len(row) and row[at + length] == row[at] and length < 255:
            length += 1
        if length == 1 and at + 3 <= len(row):
            literal = row[at : at + min(40, len(row) - at)]
            packed = pack(literal)
            out += bytes([0, len(literal)]) + packed + bytes(len(packed) % 2)
            at += len(literal)
        else:
            out += bytes([length, row[at] * spread])
            at += length
    return out


def size_of(pixels: Pixels) -> tuple[int, int]:
    return pixels.shape[1], pixels.shape[0]


def bmp_16(pixels: Pixels, *, green_bits: int) -> bytes:
    """5 bits of each colour, or 6 of green, which takes masks."""
    wide = pixels[::-1].astype(np.uint16)
    blue, green, red = (wide[..., c] for c in range(3))
    packed = blue >> 3 | (green >> (8 - green_bits)) << 5 | (red >> 3) << (5 + green_bits)
    rows = [row.tobytes() for row in packed.astype("<u2")]
    if green_bits == 5:
        return bmp(rows, size_of(pixels), 16)
    masks = struct.pack("<LLL", 0xF800, 0x7E0, 0x1F)
    return bmp(rows, size_of(pixels), 16, compression=3, masks=masks)


def bmp_top_down(pixels: Pixels) -> bytes:
    width, height = size_of(pixels)
    return bmp([row.tobytes() for row in pixels], (width, -height), 24)


def bmp_4(pixels: Pixels) -> bytes:
    indices, colours = _indexed(pixels, 16)
    even = np.pad(indices, ((0, 0), (0, indices.shape[1] % 2)))
    rows = [row.tobytes() for row in even[:, ::2] << 4 | even[:, 1::2]]
    return bmp(rows, size_of(pixels), 4, colours=colours[:64])


def bmp_core(pixels: Pixels) -> bytes:
    """The 12-byte header of OS/2."""
    width, height = size_of(pixels)
    rows = b"".join(row.tobytes() + bytes(-3 * width % 4) for row in pixels[::-1])
    head = struct.pack("<LHHHH", 12, width, height, 1, 24)
    return b"BM" + struct.pack("<LLL", 26 + len(rows), 0, 26) + head + rows


def bmp_masked_32(pixels: Pixels) -> bytes:
    four = np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)])
    masks = struct.pack("<LLL", 0xFF0000, 0xFF00, 0xFF)
    rows = [row.tobytes() for row in four[::-1]]
    return bmp(rows, size_of(pixels), 32, compression=3, masks=masks)


# --- TIFF ---------------------------------------------------------------------------------------

SHORT, LONG = 3, 4


def tiff_file(
    entries: dict[int, tuple[int, Sequence[int]]], body: bytes, order: str = "<"
) -> bytes:
    """A TIFF of (tag → type, values) and what follows the directory; values of the offsets' tags
    (273, 324) count from the beginning of `body`."""
    forms = {1: "B", 2: "B", SHORT: "H", LONG: "L"}
    directory_bytes = 2 + 12 * len(entries) + 4
    spare = b""
    lengths = {
        tag: struct.calcsize(f"={len(values)}{forms[kind]}")
        for tag, (kind, values) in entries.items()
    }
    body_at = 8 + directory_bytes + sum(n + n % 2 for n in lengths.values() if n > 4)
    directory = struct.pack(order + "H", len(entries))
    for tag, (kind, values) in sorted(entries.items()):
        base = body_at if tag in (273, 324) else 0
        form = f"{order}{len(values)}{forms[kind]}"
        packed = struct.pack(form, *(base + value for value in values))
        if len(packed) > 4:
            at = 8 + directory_bytes + len(spare)
            spare += packed + bytes(len(packed) % 2)
            packed = struct.pack(order + "L", at)
        directory += struct.pack(order + "HHL", tag, kind, len(values)) + packed.ljust(4, b"\0")
    mark = b"II" if order == "<" else b"MM"
    head = mark + struct.pack(order + "HL", 42, 8)
    return head + directory + bytes(4) + spare + body


def tiff(
    pixels: npt.NDArray[np.uint8] | npt.NDArray[np.uint16],
    *,
    order: str = "<",
    rows: int = 16,
    tile: int = 0,
    planar: bool = False,
    packed: bool = False,
    orientation: int = 0,
) -> bytes:
    """RGB (from BGR) or grey, 8 or 16 bits, in strips of `rows` or square tiles."""
    shown = pixels[..., ::-1] if pixels.ndim == 3 else pixels[..., None]
    height, width, samples = shown.shape
    bits = shown.itemsize * 8
    shown = shown.astype(shown.dtype.newbyteorder(order))
    planes = [shown[..., c : c + 1] for c in range(samples)] if planar else [shown]
    pieces = [
        part.tobytes()
        for plane in planes
        for part in (_tiles(plane, tile) if tile else _strips(plane, rows))
    ]
    if packed:
        pieces = [zlib.compress(piece) for piece in pieces]
    starts = np.cumsum([0, *map(len, pieces)])[:-1].tolist()
    places, lengths = (324, 325) if tile else (273, 279)
    entries: dict[int, tuple[int, Sequence[int]]] = {
        256: (SHORT, [width]), 257: (SHORT, [height]), 258: (SHORT, [bits] * samples),
        259: (SHORT, [8 if packed else 1]), 262: (SHORT, [2 if samples == 3 else 1]),
        277: (SHORT, [samples]), 284: (SHORT, [2 if planar else 1]),
        places: (LONG, starts), lengths: (LONG, [len(piece) for piece in pieces]),
    }  # fmt: skip
    if tile:
        entries |= {322: (SHORT, [tile]), 323: (SHORT, [tile])}
    else:
        entries[278] = (LONG, [rows])
    if orientation:
        entries[274] = (SHORT, [orientation])
    return tiff_file(entries, b"".join(pieces), order)


def _strips(plane: np.ndarray, rows: int) -> list[np.ndarray]:
    return [plane[y : y + rows] for y in range(0, len(plane), rows)]


def _tiles(plane: np.ndarray, side: int) -> list[np.ndarray]:
    height, width = plane.shape[:2]
    padded = np.pad(plane, ((0, -height % side), (0, -width % side), (0, 0)))
    return [
        padded[y : y + side, x : x + side]
        for y in range(0, height, side)
        for x in range(0, width, side)
    ]


def big_tiff(pixels: Pixels) -> bytes:
    return save(rgb_image(pixels), "TIFF", big_tiff=True)


def tiff_pages(pixels: Pixels, pages: int = 3) -> bytes:
    image = rgb_image(pixels)
    return save(image, "TIFF", save_all=True, append_images=[image.convert("L")] * (pages - 1))


# --- GIF ----------------------------------------------------------------------------------------


def gif(pixels: Pixels, colours: int = 200, **options: object) -> bytes:
    return save(rgb_image(pixels).quantize(colours), "GIF", **options)


def gif_inside(pixels: Pixels, margin: int = 9) -> bytes:
    """The frame in a larger screen, at another distance from each side, with a background."""
    data = bytearray(gif(pixels, 256))
    width, height = size_of(pixels)
    struct.pack_into("<HH", data, 6, width + 3 * margin, height + margin)
    data[11] = 5
    at = data.index(b",\0\0\0\0", 13 + 3 * 256)
    struct.pack_into("<HH", data, at + 1, 2 * margin, margin // 2)
    return bytes(data)


# --- AVIF ---------------------------------------------------------------------------------------


def avif(pixels: Pixels, **options: object) -> bytes:
    return save(rgb_image(pixels), "AVIF", **{"quality": 80, "speed": 10, **options})


def turned_avif(pixels: Pixels, orientation: int) -> bytes:
    """With `irot` and `imir`, into which Pillow turns an EXIF orientation."""
    exif = Image.Exif()
    exif[0x112] = orientation
    return avif(pixels, exif=exif)


def deep_avif(pixels: Pixels, depth: int) -> bytes:
    deep = sixteen_bit(pixels) >> (16 - depth)
    flags = [cv2.IMWRITE_AVIF_DEPTH, depth, cv2.IMWRITE_AVIF_SPEED, 10]
    return cv2.imencode(".avif", deep, flags)[1].tobytes()


def _tiff_by_pillow(pixels: Pixels, mode: str, compression: str | None = None) -> bytes:
    return save(rgb_image(pixels).convert(mode), "TIFF", compression=compression)


FORMATS: dict[str, tuple[Encoding, Callable[[Pixels], bytes]]] = {
    "bmp-24": (Encoding.BMP, lambda p: save(rgb_image(p), "BMP")),
    "bmp-32": (Encoding.BMP, lambda p: save(with_alpha(rgb_image(p)), "BMP")),
    "bmp-32-masks": (Encoding.BMP, bmp_masked_32),
    "bmp-16-555": (Encoding.BMP, lambda p: bmp_16(p, green_bits=5)),
    "bmp-16-565": (Encoding.BMP, lambda p: bmp_16(p, green_bits=6)),
    "bmp-8": (Encoding.BMP, lambda p: save(rgb_image(p).quantize(200), "BMP")),
    "bmp-8-gray": (Encoding.BMP, lambda p: save(rgb_image(p).convert("L"), "BMP")),
    "bmp-4": (Encoding.BMP, bmp_4),
    "bmp-1": (Encoding.BMP, lambda p: save(rgb_image(p).convert("1"), "BMP")),
    "bmp-rle8": (Encoding.BMP, bmp_rle8),
    "bmp-rle4": (Encoding.BMP, bmp_rle4),
    "bmp-top-down": (Encoding.BMP, bmp_top_down),
    "bmp-core": (Encoding.BMP, bmp_core),
    "tiff-strips": (Encoding.TIFF, tiff),
    "tiff-big-endian": (Encoding.TIFF, lambda p: tiff(p, order=">")),
    "tiff-one-strip": (Encoding.TIFF, lambda p: tiff(p, rows=2**32 - 1)),
    "tiff-tiles": (Encoding.TIFF, lambda p: tiff(p, tile=32)),
    "tiff-planes": (Encoding.TIFF, lambda p: tiff(p, planar=True)),
    "tiff-deflate": (Encoding.TIFF, lambda p: tiff(p, packed=True, tile=64)),
    "tiff-lzw": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "RGB", "tiff_lzw")),
    "tiff-packbits": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "RGB", "packbits")),
    "tiff-jpeg": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "RGB", "jpeg")),
    "tiff-group3": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "1", "group3")),
    "tiff-group4": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "1", "group4")),
    "tiff-1": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "1")),
    "tiff-gray": (Encoding.TIFF, lambda p: tiff(cv2.cvtColor(p, cv2.COLOR_BGR2GRAY))),
    "tiff-palette": (Encoding.TIFF, lambda p: save(rgb_image(p).quantize(200), "TIFF")),
    "tiff-alpha": (Encoding.TIFF, lambda p: save(with_alpha(rgb_image(p)), "TIFF")),
    "tiff-cmyk": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "CMYK")),
    "tiff-ycbcr": (Encoding.TIFF, lambda p: _tiff_by_pillow(p, "YCbCr")),
    "tiff-16": (Encoding.TIFF, lambda p: tiff(sixteen_bit(p))),
    "tiff-16-big-endian": (Encoding.TIFF, lambda p: tiff(sixteen_bit(p), order=">", packed=True)),
    "tiff-16-gray": (Encoding.TIFF, lambda p: tiff(sixteen_bit(p)[..., 0])),
    "tiff-pages": (Encoding.TIFF, tiff_pages),
    "gif": (Encoding.GIF, gif),
    "gif-interlaced": (Encoding.GIF, lambda p: gif(p, interlace=1)),
    "gif-2-colours": (Encoding.GIF, lambda p: gif(p, 2)),
    "gif-transparent": (Encoding.GIF, lambda p: gif(p, transparency=7)),
    "gif-animated": (
        Encoding.GIF,
        lambda p: gif(p, save_all=True, append_images=[rgb_image(p[::-1])], comment=b"c" * 999),
    ),
    "gif-inside": (Encoding.GIF, gif_inside),
    "avif": (Encoding.AVIF, avif),
    "avif-444": (Encoding.AVIF, lambda p: avif(p, subsampling="4:4:4")),
    "avif-alpha": (
        Encoding.AVIF,
        lambda p: save(with_alpha(rgb_image(p)), "AVIF", speed=10),
    ),
    "avif-gray": (Encoding.AVIF, lambda p: save(rgb_image(p).convert("L"), "AVIF", speed=10)),
    "avif-10": (Encoding.AVIF, lambda p: deep_avif(p, 10)),
    "avif-12": (Encoding.AVIF, lambda p: deep_avif(p, 12)),
    # Subsampled grids have even sides.
    "avif-grid": (
        Encoding.AVIF,
        lambda p: grid_avif(p, lambda tile: avif(tile, subsampling="4:4:4")),
    ),
}
"""Kind → encoding and encoder. Every one must be decoded."""
