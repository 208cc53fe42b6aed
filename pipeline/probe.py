"""The probe: what a picture is, read from its header alone, before anything costly sees it.

Decoders believe headers and allocate by them, so a lie must end here: sizes are limited, time
bombs counted, and formats that this worker does not decode refused by name. Reads in place; the
work is bounded whatever the bytes are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.item import Header
from pipeline.probe_jpeg import read_jpeg
from pipeline.probe_png import read_png
from pipeline.probe_raw import read_raw
from pipeline.probe_refusal import refusal, truncated
from pipeline.probe_webp import read_webp
from schemas.errors import Reason
from schemas.frame import RAW_ENCODINGS, Encoding, FrameMessage

_MARKS: dict[Encoding, tuple[tuple[int, bytes], ...]] = {
    Encoding.JPEG: ((0, b"\xff\xd8\xff"),),
    Encoding.PNG: ((0, b"\x89PNG\r\n\x1a\n"),),
    Encoding.WEBP: ((0, b"RIFF"), (8, b"WEBP")),
}
"""Encoding → (offset, bytes) that such a picture must have."""

_OTHER_MARKS: tuple[tuple[str, int, bytes], ...] = (
    ("GIF", 0, b"GIF8"),
    ("BMP", 0, b"BM"),
    ("TIFF", 0, b"II*\0"),
    ("TIFF", 0, b"MM\0*"),
    ("AVIF or HEIF", 4, b"ftyp"),
    ("JPEG 2000", 0, b"\0\0\0\x0cjP  "),
    ("JPEG XL", 0, b"\xff\x0a"),
    ("JPEG XL", 0, b"\0\0\0\x0cJXL "),
)
"""Formats known by name only, so that a dead letter says what the bytes are."""


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
    size = f"{header.width}×{header.height}"
    if header.width < 1 or header.height < 1:
        raise refusal(Reason.ZERO_SIZE, f"the picture is {size} pixels")
    if header.width * header.height > limits.max_pixels:
        raise refusal(
            Reason.TOO_MANY_PIXELS, f"the picture is {size} pixels, the limit {limits.max_pixels}"
        )
    return header


def _read(frame: FrameMessage, limits: ProbeLimits) -> Header:
    data, encoding = frame.data, frame.encoding
    if encoding in RAW_ENCODINGS:
        return read_raw(frame)
    marks = _MARKS.get(encoding)
    if marks is None:
        raise refusal(Reason.UNSUPPORTED_ENCODING, f"this worker does not decode {encoding}")
    _check_marks(data, encoding, marks)
    if encoding is Encoding.JPEG:
        return read_jpeg(data, limits.max_scans, limits.max_pixels)
    if encoding is Encoding.PNG:
        return read_png(data)
    return read_webp(data)


def _check_marks(
    data: memoryview, encoding: Encoding, marks: tuple[tuple[int, bytes], ...]
) -> None:
    for at, mark in marks:
        found = bytes(data[at : at + len(mark)])
        if found == mark:
            continue
        if found == mark[: len(found)]:
            raise truncated(f"the marks of a {encoding} picture")
        raise refusal(
            Reason.ENCODING_MISMATCH, f"the frame says {encoding}, the bytes are {_name(data)}"
        )


def _name(data: memoryview) -> str:
    """What the bytes look like, for a human."""
    head = bytes(data[:16])
    for encoding, marks in _MARKS.items():
        if all(head.startswith(mark, at) for at, mark in marks):
            return encoding.value
    for name, at, mark in _OTHER_MARKS:
        if head.startswith(mark, at):
            return name
    return "of no known format"
