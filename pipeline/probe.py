"""The probe: what a picture is, read from its header alone, before anything costly sees it.

Decoders believe headers and allocate by them, so a lie must end here: sizes are limited, time
bombs counted, and formats that this worker does not decode refused by name. Reads in place; the
work is bounded whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.item import Header
from pipeline.probe_avif import read_avif
from pipeline.probe_bmp import read_bmp
from pipeline.probe_gif import read_gif
from pipeline.probe_jpeg import read_jpeg
from pipeline.probe_png import read_png
from pipeline.probe_raw import read_raw
from pipeline.probe_refusal import refusal, truncated
from pipeline.probe_tiff import read_tiff
from pipeline.probe_webp import read_webp
from schemas.errors import PoisonError, Reason
from schemas.frame import RAW_ENCODINGS, Encoding, FrameMessage
from schemas.magic import refused_format, sniff

_Marks = tuple[tuple[int, bytes], ...]
"""(offset, bytes) that such a picture must have."""

_MARKS: dict[Encoding, tuple[_Marks, ...]] = {
    Encoding.JPEG: (((0, b"\xff\xd8\xff"),),),
    Encoding.PNG: (((0, b"\x89PNG\r\n\x1a\n"),),),
    Encoding.WEBP: (((0, b"RIFF"), (8, b"WEBP")),),
    Encoding.BMP: (((0, b"BM"),),),
    Encoding.TIFF: tuple(((0, mark),) for mark in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    Encoding.GIF: (((0, b"GIF87a"),), ((0, b"GIF89a"),)),
    Encoding.AVIF: (((4, b"ftyp"),),),
}
"""Encoding → the forms in which such a picture begins."""


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """What a header may claim.

    Attributes:
        max_pixels: most displayed pixels (width × height).
        max_scans: most scans of a JPEG that is decoded scan by scan; fewer for large ones.
    """

    max_pixels: int
    max_scans: int


def probe(frame: FrameMessage, limits: ProbeLimits) -> Header:
    """Format, stored size and orientation of `frame.data`, without decoding or copying it.

    Raises:
        PoisonError: with stage `probe` and one of UNSUPPORTED_ENCODING, ENCODING_MISMATCH,
            TRUNCATED_HEADER, BAD_HEADER, ZERO_SIZE, TOO_MANY_PIXELS, TOO_MANY_SCANS. Nothing else
            is raised, on any bytes.
    """
    header = _read(frame, limits)
    # As stored: there are as many of them as are displayed.
    width, height = header.coded_width, header.coded_height
    if width < 1 or height < 1 or width * height > limits.max_pixels:
        raise _size_refused(header, limits.max_pixels)
    return header


def _size_refused(header: Header, max_pixels: int) -> PoisonError:
    size = f"{header.width}×{header.height}"
    if header.width < 1 or header.height < 1:
        return refusal(Reason.ZERO_SIZE, f"the picture is {size} pixels")
    return refusal(Reason.TOO_MANY_PIXELS, f"the picture is {size} pixels, the limit {max_pixels}")


def _read(frame: FrameMessage, limits: ProbeLimits) -> Header:
    data, encoding = frame.data, frame.encoding
    if encoding in RAW_ENCODINGS:
        return read_raw(frame)
    if encoding not in _MARKS:
        raise refusal(Reason.UNSUPPORTED_ENCODING, f"this worker does not decode {encoding}")
    _check_marks(data, encoding)
    if encoding in _READERS:
        return _READERS[encoding](data, limits.max_pixels)
    scanned = read_jpeg if encoding is Encoding.JPEG else read_tiff
    return scanned(data, limits.max_scans, limits.max_pixels)


_READERS: dict[Encoding, Callable[[memoryview, int], Header]] = {
    Encoding.PNG: lambda data, _: read_png(data),
    Encoding.WEBP: lambda data, _: read_webp(data),
    Encoding.GIF: lambda data, _: read_gif(data),
    Encoding.BMP: read_bmp,
    Encoding.AVIF: read_avif,
}
"""Of formats without scans: the header, from the bytes and the most pixels."""


def _check_marks(data: memoryview, encoding: Encoding) -> None:
    """Whether the bytes begin like a picture of the encoding.

    Raises:
        PoisonError: ENCODING_MISMATCH; TRUNCATED_HEADER where the marks are cut.
    """
    name = sniff(data)
    if name is encoding:
        return
    other = name or refused_format(data)
    forms = () if other is not None else _MARKS[encoding]
    if any(all(_agrees(data, at, mark, whole=True) for at, mark in form) for form in forms):
        return  # its reader says what is wrong
    if any(all(_agrees(data, at, mark) for at, mark in form) for form in forms):
        raise truncated(f"the marks of a {encoding} picture")
    raise refusal(
        Reason.ENCODING_MISMATCH,
        f"the frame says {encoding}, the bytes are {other or 'of no known format'}",
    )


def _agrees(data: memoryview, at: int, mark: bytes, *, whole: bool = False) -> bool:
    """Whether the mark stands there, or (unless `whole`) as much of it as there are bytes."""
    found = bytes(data[at : at + len(mark)])
    return found == (mark if whole else mark[: len(found)])
