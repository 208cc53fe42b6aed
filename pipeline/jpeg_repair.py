"""What cameras leave out of a JPEG, put back before a decoder sees it."""

from __future__ import annotations

from pipeline.jpeg_end import lacks_end, with_end
from pipeline.jpeg_tables import lacks_tables, with_tables


def repaired(data: memoryview) -> memoryview | bytes | None:
    """The JPEG with its Huffman tables and its end marker: `data` itself where nothing is missing,
    None where more is missing than can be put back.

    Raises:
        cv2.error: what the end marker's repair may raise.
    """
    if lacks_tables(data):
        data = memoryview(with_tables(data))
    return with_end(data) if lacks_end(data) else data
