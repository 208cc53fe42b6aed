"""Turns stored pixels as they are displayed, and puts them where they lie in the bucket's row."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from pipeline.letterbox import PAD_VALUE, Letterbox
from pipeline.orientation import UPRIGHT, turn_of

Pixels = npt.NDArray[np.uint8]
"""uint8, shape (height, width, 3), channels RGB unless said otherwise."""


def place(pixels: Pixels, geometry: Letterbox, row: Pixels) -> None:
    """Resize displayed pixels into their place in `row` and fill the rest with `PAD_VALUE`.

    Args:
        pixels: shape (source_height, source_width, 3), or without the channels.
        row: shape (height, width) and the same channels, written in full.
    """
    top, left = geometry.top, geometry.left
    bottom, right = top + geometry.inner_height, left + geometry.inner_width
    inner = row[top:bottom, left:right]
    if pixels.shape == inner.shape:
        inner[:] = pixels
    else:
        size = (geometry.inner_width, geometry.inner_height)
        cv2.resize(pixels, size, dst=inner, interpolation=cv2.INTER_LINEAR)
    row[:top] = PAD_VALUE
    row[bottom:] = PAD_VALUE
    row[top:bottom, :left] = PAD_VALUE
    row[top:bottom, right:] = PAD_VALUE


def turned(pixels: Pixels, orientation: int) -> Pixels:
    """Stored pixels as EXIF's orientation 1 to 8 displays them; themselves where it is upright."""
    if orientation == UPRIGHT:
        return pixels
    turn = turn_of(orientation)
    if turn.transpose:
        pixels = pixels.transpose(1, 0, 2)
    return np.ascontiguousarray(
        pixels[:: -1 if turn.mirror_y else 1, :: -1 if turn.mirror_x else 1]
    )
