"""The first frame of a GIF, by Pillow's decompressor on the frame alone.

OpenCV's own takes 5 µs for a code that clears the table, and three bits hold one: a record of
12 KB cost 160 ms, one of 8 MB would cost two minutes. What is shown is what OpenCV shows: the
screen in its background colour, with the frame put into it, transparent pixels left out.
"""

from __future__ import annotations

import io
import struct

import numpy as np
import numpy.typing as npt
from PIL import GifImagePlugin, Image

from pipeline.decode_failure import failure
from pipeline.place import Pixels
from pipeline.probe_gif import GifFrame, first_frame
from schemas.errors import PoisonError

_PILLOW_ERRORS = (
    OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error,
    Image.DecompressionBombError,
)  # fmt: skip
"""Whatever Pillow has for damaged bytes, and for pictures beyond a limit of its own."""


def decode_gif(data: memoryview) -> Pixels | PoisonError:
    """The screen with its first frame, RGB; or why it cannot be decoded."""
    try:
        frame = first_frame(data)
        indices = _indices(data, frame)
    except PoisonError as error:
        return failure(error.detail)
    except _PILLOW_ERRORS as error:
        return failure(f"the GIF's first frame cannot be unpacked: {error}")
    covers = (frame.width, frame.height) == (frame.screen_width, frame.screen_height)
    shown = _colour_table(frame.colours)[indices]
    if covers and frame.transparent is None:
        return shown
    screen = np.empty((frame.screen_height, frame.screen_width, 3), np.uint8)
    screen[:] = _colour_table(frame.screen_colours)[frame.background]
    spot = screen[frame.top : frame.top + frame.height, frame.left : frame.left + frame.width]
    seen = ... if frame.transparent is None else indices != frame.transparent
    spot[seen] = shown[seen]
    return screen


def _indices(data: memoryview, frame: GifFrame) -> npt.NDArray[np.uint8]:
    """The frame's colour indices, shape (height, width).

    Pillow is given a GIF that holds nothing else: comments (which it would gather at a quadratic
    price) and the screen around the frame are not its business.
    """
    size = struct.pack("<HH", frame.width, frame.height)
    # A grey ramp for a colour table: then Pillow's levels are the indices.
    ramp = bytes(level for level in range(256) for _ in "rgb")
    head = b"GIF89a" + size + b"\xf7\0\0" + ramp
    head += b"\x2c\0\0\0\0" + size + (b"\x40" if frame.interlaced else b"\0")
    whole = b"".join((head, data[frame.codes_at :]))
    with GifImagePlugin.GifImageFile(io.BytesIO(whole)) as image:
        indices = np.asarray(image)
    if indices.shape != (frame.height, frame.width):
        raise ValueError(f"shape {indices.shape}")
    return indices


def _colour_table(colours: memoryview) -> npt.NDArray[np.uint8]:
    """The table as (256, 3), black where it ends early."""
    table = np.zeros((256, 3), np.uint8)
    entries = np.frombuffer(colours, np.uint8).reshape(-1, 3)
    table[: len(entries)] = entries
    return table
