"""A decoder under test and the picture it is compared with."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from ultralytics.data.augment import LetterBox

from pipeline.bucket import Bucket
from pipeline.item import Item
from pipeline.ports import Decoder
from schemas.errors import PoisonError
from schemas.frame import RAW_ENCODINGS, Encoding
from tests.builders_pictures import Pixels, raw_pixels, scan_start

UNTOUCHED = 7
"""Fills tensors before a decode. Rows beyond the batch must keep it."""

needs_dali = pytest.mark.skipif(
    importlib.util.find_spec("nvidia") is None or importlib.util.find_spec("nvidia.dali") is None,
    reason="DALI is not installed",
)


@dataclass(frozen=True)
class Subject:
    """A decoder under test, where its tensors lie, and the mean difference it may have."""

    decoder: Decoder
    device: str
    exact: bool

    def decode(
        self, items: Sequence[Item], spare: int = 0
    ) -> tuple[list[PoisonError | None], npt.NDArray[np.uint8]]:
        into = items[0].bucket
        shape = (len(items) + spare, into.height, into.width, 3)
        out = torch.full(shape, UNTOUCHED, dtype=torch.uint8, device=self.device)
        errors = self.decoder.decode(items, out)
        return errors, out.cpu().numpy()

    def check(self, item: Item, row: npt.NDArray[np.uint8], note: object = "") -> None:
        difference = np.abs(row.astype(np.int16) - reference(item))
        if self.exact or item.header.encoding in RAW_ENCODINGS:
            assert not difference.any(), note
        else:
            assert difference.mean() <= 2.0, note


def reference(item: Item) -> npt.NDArray[np.int16]:
    """The row that a decoder should write: RGB, shape (bucket height, bucket width, 3)."""
    return reference_of(_displayed(item), item.bucket)


def reference_of(pixels: Pixels, into: Bucket) -> npt.NDArray[np.int16]:
    """The row of a picture as displayed, BGR."""
    placed = LetterBox((into.height, into.width), auto=False, scaleup=True)(image=pixels)
    return placed[..., ::-1].astype(np.int16)


def _displayed(item: Item) -> Pixels:
    """The picture as displayed, BGR."""
    if item.header.encoding in RAW_ENCODINGS:
        return raw_pixels(item.frame)
    data = bytes(item.frame.data)
    if item.header.encoding is Encoding.JPEG and b"\xff\xd9" not in data[scan_start(data) :]:
        data += b"\xff\xd9"
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(pixels, np.uint8)
