"""Reads a TIFF's first page: size, orientation, and what its strips or tiles would take.

Source: TIFF 6.0; TIFF Technical Note 2 (JPEG), Adobe Photoshop TIFF Technical Notes (Deflate).
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.item import Header
from pipeline.orientation import UPRIGHT
from pipeline.probe_jpeg import read_jpeg
from pipeline.probe_refusal import bad_header, refusal, truncated
from pipeline.tiff_directory import ORIENTATION, TiffDirectory
from schemas.errors import Reason
from schemas.frame import Encoding

MAX_PIECES = 16_384
"""Most strips or tiles."""

MAX_JPEG_PIECES = 1024
"""The same, where each is a JPEG whose header must be read."""

SPARE_PIXELS = 1 << 20
"""What strips or tiles may cover beyond four times a picture: small ones have tiles of usual sizes.
Decoders allocate whole tiles, and are let in by the size of the picture."""

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_OFFSETS, _SAMPLES, _ROWS_PER_STRIP, _STRIP_BYTES = 273, 277, 278, 279
_PLANAR, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_BYTES = 284, 322, 323, 324, 325
_SAMPLE_FORMAT, _IMAGE_DEPTH, _TILE_DEPTH = 339, 32997, 32998

_JPEG = 7
_BILEVEL_ONLY = frozenset({2, 3, 4})
_COMPRESSIONS = frozenset({1, *_BILEVEL_ONLY, 5, _JPEG, 8, 32773, 32946})
"""None, CCITT, LZW, JPEG, Deflate (two numbers), PackBits: what OpenCV's TIFF library was built
with. A JPEG of the old kind (6) is refused as well: its parts are scattered over the file."""
_PALETTE = 3
_PHOTOMETRICS = frozenset({0, 1, 2, _PALETTE, 5, 6, 8})
"""Grey (two ways), RGB, palette, CMYK, YCbCr, CIE L*a*b*."""
_WHOLE = 2**32 - 1
"""The rows of a strip that holds the whole picture."""


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The strips or tiles: size of one in pixels, and how many of one plane."""

    width: int
    height: int
    count: int


def read_tiff(data: memoryview, max_scans: int, max_pixels: int) -> Header:
    """The header of a TIFF whose first four bytes were checked. Only the first page is read.

    Args:
        data: the picture.
        max_scans: as for `read_jpeg`, for pages packed as JPEG.
        max_pixels: most pixels of the picture and of one strip or tile.

    Raises:
        PoisonError: TRUNCATED_HEADER, BAD_HEADER, ZERO_SIZE, TOO_MANY_PIXELS, TOO_MANY_SCANS, or
            UNSUPPORTED_ENCODING for kinds that no decoder here reads.
    """
    directory = TiffDirectory(data)
    width, height = directory.number(_WIDTH), directory.number(_HEIGHT)
    turn = directory.number(ORIENTATION, UPRIGHT)
    header = Header(Encoding.TIFF, width, height, turn if 1 <= turn <= 8 else UPRIGHT)
    if width < 1 or height < 1 or width * height > max_pixels:
        return header  # refused for that by the probe
    _check_kind(directory)
    pieces = _pieces(directory, width, height)
    area = pieces.width * pieces.height
    if area > max_pixels or pieces.count * area > 4 * width * height + SPARE_PIXELS:
        raise refusal(
            Reason.TOO_MANY_PIXELS,
            f"the TIFF's {pieces.count} pieces are {pieces.width}×{pieces.height} pixels each",
        )
    spans = _spans(directory, pieces)
    if directory.number(_COMPRESSION, 1) == _JPEG:
        _check_jpegs(data, spans, pieces, max_scans, max_pixels)
    return header


def _check_kind(directory: TiffDirectory) -> None:
    compression = directory.number(_COMPRESSION, 1)
    photometric = directory.number(_PHOTOMETRIC)
    samples = directory.number(_SAMPLES, 1)
    bits = directory.numbers(_BITS, 1, most=16)
    kinds = directory.numbers(_SAMPLE_FORMAT, 1, most=16)
    depths = {8, 16, 4} if photometric == _PALETTE else {1, 8, 16}
    if compression in _BILEVEL_ONLY:
        depths = {1}
    for wrong, what in (
        (compression not in _COMPRESSIONS, f"compression {compression}"),
        (photometric not in _PHOTOMETRICS, f"photometric interpretation {photometric}"),
        (not 1 <= samples <= 4, f"{samples} samples per pixel"),
        (len(set(bits)) > 1 or bits[0] not in depths, f"{bits[0]} bits per sample"),
        (set(kinds) != {1}, "samples that are not whole numbers without a sign"),
        (any(directory.number(tag, 1) != 1 for tag in (_IMAGE_DEPTH, _TILE_DEPTH)), "a depth"),
    ):
        if wrong:
            raise refusal(Reason.UNSUPPORTED_ENCODING, f"TIFF with {what}")


def _pieces(directory: TiffDirectory, width: int, height: int) -> _Pieces:
    tiled = directory.has(_TILE_WIDTH)
    if (tiled and directory.has(_STRIP_OFFSETS)) or (not tiled and directory.has(_TILE_OFFSETS)):
        raise bad_header("the TIFF has strips and tiles")
    if tiled:
        tile_width, tile_height = directory.number(_TILE_WIDTH), directory.number(_TILE_HEIGHT)
        if tile_width < 1 or tile_height < 1:
            raise bad_header(f"the TIFF's tiles are {tile_width}×{tile_height} pixels")
        across, down = -(-width // tile_width), -(-height // tile_height)
        return _Pieces(tile_width, tile_height, across * down)
    rows = directory.number(_ROWS_PER_STRIP, _WHOLE)
    if rows == 0:
        raise bad_header("the TIFF's strips have no rows")
    if rows == _WHOLE:
        rows = height
    return _Pieces(width, rows, -(-height // rows))


def _spans(directory: TiffDirectory, pieces: _Pieces) -> list[tuple[int, int]]:
    """Start and length of each strip or tile; all lie inside the file and hardly overlap."""
    tiled = directory.has(_TILE_WIDTH)
    planes = directory.number(_SAMPLES, 1) if directory.number(_PLANAR, 1) == 2 else 1
    starts = directory.numbers(_TILE_OFFSETS if tiled else _STRIP_OFFSETS, most=MAX_PIECES)
    lengths = directory.numbers(_TILE_BYTES if tiled else _STRIP_BYTES, most=MAX_PIECES)
    if not len(starts) == len(lengths) == pieces.count * planes:
        raise bad_header(
            f"the TIFF has {pieces.count * planes} pieces, {len(starts)} places and "
            f"{len(lengths)} lengths of them"
        )
    spans = list(zip(starts, lengths, strict=True))
    size = len(directory.data)
    if max(start + length for start, length in spans) > size:
        raise truncated("the end of a strip or tile of the TIFF")
    if sum(lengths) > 2 * size:
        raise bad_header("the TIFF's strips or tiles lie over each other")
    return spans


def _check_jpegs(
    data: memoryview,
    spans: list[tuple[int, int]],
    pieces: _Pieces,
    max_scans: int,
    max_pixels: int,
) -> None:
    """Each piece is a JPEG with a size of its own, which must not go beyond the piece's."""
    if len(spans) > MAX_JPEG_PIECES:
        raise bad_header(f"more than {MAX_JPEG_PIECES} JPEGs in the TIFF")
    for start, length in spans:
        piece = data[start : start + length]
        if bytes(piece[:3]) != b"\xff\xd8\xff":
            raise bad_header("a strip or tile of the TIFF is no JPEG")
        found = read_jpeg(piece, max_scans, max_pixels)
        if found.coded_width > pieces.width or found.coded_height > pieces.height:
            raise bad_header(
                f"a JPEG in the TIFF is {found.coded_width}×{found.coded_height} pixels, its place "
                f"{pieces.width}×{pieces.height}"
            )
