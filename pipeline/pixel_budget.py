"""How many pixels may be decoded at the same time: the bound on memory that hostile pictures meet.

A record of 650 KB can hold a picture of 50 million pixels, which takes some 270 MB while it is
decoded, in every thread at once. Flow counts encoded bytes only, so the bound stands here.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from pipeline.item import Item
from schemas.frame import Encoding

DECODING_PIXELS = 100_000_000
"""In main memory: two pictures of the default `limits.max_pixels`, or a dozen in 4K."""

DECODING_PIXELS_ON_GPU = 400_000_000
"""In a GPU's memory, where a batch is decoded as one: 1.2 GB."""


class PixelBudget:
    """Lets threads in as long as what they decode stays within `pixels` together. A picture that
    is larger than that is decoded alone. For any number of threads.

    Args:
        pixels: stored pixels, ≥ 1.
    """

    def __init__(self, pixels: int) -> None:
        if pixels < 1:
            raise ValueError(f"a budget needs at least one pixel, not {pixels}")
        self._pixels = pixels
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def held(self, pixels: int) -> Generator[None]:
        """Wait for room, and hold it inside."""
        with self._changed:
            self._changed.wait_for(lambda: self._used == 0 or self._used + pixels <= self._pixels)
            self._used += pixels
        try:
            yield
        finally:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()


_WEIGHTS = {Encoding.AVIF: 2, Encoding.TIFF: 2}
"""Formats whose decoders hold twice as much for a pixel: AV1's own frames, RGBA and 16 bits of a
TIFF's strips."""


def stored_pixels(item: Item) -> int:
    """What the picture's header claims, and what a decoder allocates by: pixels, those of formats
    that take more memory counted double."""
    header = item.header
    return header.coded_width * header.coded_height * _WEIGHTS.get(header.encoding, 1)


def within(items: Sequence[Item], pixels: int) -> Iterator[range]:
    """Neighbours that may be decoded together: pieces of at most `pixels`, or one picture each."""
    start = used = 0
    for index, item in enumerate(items):
        more = stored_pixels(item)
        if index > start and used + more > pixels:
            yield range(start, index)
            start, used = index, 0
        used += more
    if items:
        yield range(start, len(items))
