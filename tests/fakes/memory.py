"""Memory that runs out: a fake lane with room for so many frames at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from pipeline.item import Item
from pipeline.ports import Lane
from schemas.errors import TransientError
from tests.fakes.lane import FakeDecoder, FakeModel

Starved = Literal["decode", "infer"]


class ShortMemory:
    """Makes one stage of a lane of fakes run out of memory, as OpenCV and torch do.

    Args:
        lane: its decoder and model are the fakes.

    Attributes:
        stage: where memory is short; nowhere while None. May change at any time.
        fits: so many frames in a batch still find room there.
    """

    def __init__(self, lane: Lane, *, stage: Starved | None = None, fits: int = 1) -> None:
        assert isinstance(lane.decoder, FakeDecoder)
        assert isinstance(lane.model, FakeModel)
        self.stage = stage
        self.fits = fits
        lane.decoder.before, lane.model.before = self._decode, self._infer

    def _decode(self, items: Sequence[Item]) -> None:
        if self.stage == "decode" and len(items) > self.fits:
            raise TransientError("out of memory")

    def _infer(self, levels: list[int]) -> None:
        if self.stage == "infer" and len(levels) > self.fits:
            raise torch.OutOfMemoryError
