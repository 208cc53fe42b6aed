"""The lane of the scenarios: no weights, hundreds of frames a second, and as slow as it is told.

A frame's `meta` says as which grey level it is decoded, whatever its picture shows. Levels with a
meaning of their own: `UNREADABLE` cannot be decoded, `FAILS` makes the model raise, `CROWDED` fills
the result up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from pipeline.item import Item
from pipeline.letterbox import Letterbox
from pipeline.ports import Lane
from schemas.errors import PoisonError, Reason
from schemas.result import Detection
from tests.fakes.lane import FakeDecoder, FakeModel, FakePostprocessor
from tests.fakes.pace import Paced

UNREADABLE, FAILS, CROWDED = 7, 13, 200
BOXES_IN_A_CROWD = 300
"""About 25 KB of result."""


class ScenarioDecoder(FakeDecoder):
    """Fills a row with the level that the frame's `meta` names; 90 without."""

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        self.before(items)
        levels = [int(item.frame.meta.get("level", "90")) for item in items]
        for row, level in zip(out, levels, strict=False):
            row.fill_(level)
        bad = PoisonError(Reason.DECODE_FAILED, "marked unreadable", stage="decode")
        return [bad if level == UNREADABLE else None for level in levels]


class ScenarioModel(FakeModel):
    """Answers every frame with the level at its centre (around it may be letterbox).

    Args:
        paced: how long a batch takes, and how many frames there may be.
    """

    def __init__(self, paced: Paced) -> None:
        super().__init__()
        self._paced = paced

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        height, width = frames.shape[2:]
        levels = frames[:, :1, height // 2, width // 2 : width // 2 + 1]
        self.before([int(level) for level in levels.flatten()])
        if (levels == FAILS).any():
            raise ValueError("a frame at level 13")
        self._paced.wait(len(frames))
        return levels.to(torch.float32)


class CrowdPostprocessor(FakePostprocessor):
    """One detection per row; three hundred for a crowd."""

    def detections(
        self, raw: torch.Tensor, geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        return [
            each * BOXES_IN_A_CROWD if each[0].class_id == CROWDED else each
            for each in super().detections(raw, geometries)
        ]


def scenario_lane(pace: Path) -> Lane:
    """A lane that keeps the pace that the file says now."""
    return Lane(ScenarioDecoder(), ScenarioModel(Paced(pace)), CrowdPostprocessor())
