"""Raw pictures: how many bytes a size takes. No header says it, so the bytes must account for it.

Source of NV12's layout: the FourCC definitions of YUV formats (a luma plane, then one of
interleaved U and V at half the width and half the height).
"""

from __future__ import annotations

from schemas.frame import RAW_ENCODINGS, Encoding


def raw_bytes(encoding: Encoding, width: int, height: int) -> int:
    """Bytes of a raw picture with packed rows. Both sides must be even for NV12.

    Raises:
        ValueError: the encoding is not a raw one.
    """
    if encoding not in RAW_ENCODINGS:
        raise ValueError(f"{encoding} is not a raw encoding")
    if encoding is Encoding.GRAY8:
        return width * height
    if encoding is Encoding.NV12:
        return width * height * 3 // 2
    return width * height * 3


def raw_fault(encoding: Encoding, width: int | None, height: int | None, nbytes: int) -> str | None:
    """Why `nbytes` bytes are no raw picture of that size, in one sentence, or None when they are.

    Args:
        encoding: one of `RAW_ENCODINGS`.
        width, height: as the producer stated them, pixels.
        nbytes: length of the picture's bytes.
    """
    if width is None or height is None:
        return f"{encoding.value} needs width and height"
    if encoding is Encoding.NV12 and (width % 2 or height % 2):
        return f"nv12 needs even sides, not {width}x{height}"
    expected = raw_bytes(encoding, width, height)
    if nbytes != expected:
        return f"{encoding.value} of {width}x{height} takes {expected} bytes, not {nbytes}"
    return None
