"""Puts a decoded picture where it lies in its bucket's row, on the device that has it."""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate

from pipeline.letterbox import PAD_VALUE, Letterbox
from pipeline.orientation import turn_of


def place_on_device(
    pixels: torch.Tensor, orientation: int, geometry: Letterbox, row: torch.Tensor
) -> None:
    """Turn, resize and pad by the shared geometry. Within one grey level of `pipeline.place`: both
    sample between pixel centres without a filter, and OpenCV's weights have eleven bits.

    Args:
        pixels: uint8 (3, height, width) as stored, RGB.
        orientation: EXIF, 1..8.
        geometry: where the displayed picture goes.
        row: uint8 (height, width, 3), RGB, on the same device; written in full.
    """
    turn = turn_of(orientation)
    if turn.transpose:
        pixels = pixels.transpose(1, 2)
    mirrored = [dim for dim, wanted in ((1, turn.mirror_y), (2, turn.mirror_x)) if wanted]
    if mirrored:
        pixels = pixels.flip(mirrored)
    top, left = geometry.top, geometry.left
    bottom, right = top + geometry.inner_height, left + geometry.inner_width
    size = (geometry.inner_height, geometry.inner_width)
    if tuple(pixels.shape[1:]) != size:
        resized = interpolate(
            pixels[None].float(), size=size, mode="bilinear", align_corners=False, antialias=False
        )
        pixels = resized[0].round_().to(torch.uint8)
    row[top:bottom, left:right] = pixels.permute(1, 2, 0)
    row[:top] = PAD_VALUE
    row[bottom:] = PAD_VALUE
    row[top:bottom, :left] = PAD_VALUE
    row[top:bottom, right:] = PAD_VALUE
