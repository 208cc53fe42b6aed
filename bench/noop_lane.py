"""A lane that costs nothing: neither decodes nor infers, and finds nothing. What is left is Kafka
and our own code around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from pipeline.bucket import Bucket
from pipeline.item import Item
from pipeline.letterbox import Letterbox
from pipeline.ports import Lane
from pipeline.table import COLUMNS, Table
from schemas.errors import PoisonError
from schemas.result import Detection, ModelInfo

MODEL = ModelInfo(name="none", version="0" * 12, task="detect", conf=0.25, iou=0.7)


class NoDecoder:
    """Leaves the rows as they are."""

    name = "none"

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:  # noqa: ARG002
        return [None] * len(items)

    def close(self) -> None:
        """Nothing is open."""


class NoModel:
    """Predicts nothing; one row per frame."""

    info = MODEL
    labels: Mapping[int, str] = {}
    stride = 32
    device = torch.device("cpu")

    def __init__(self) -> None:
        self._raw = torch.zeros((1_024, 1))

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """It is warm."""

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        return self.forward(frames)

    def kept(self) -> object:
        return None

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self._raw[: len(frames)]


class NoPostprocessor:
    """Finds nothing."""

    max_det = 1

    def detections(
        self,
        raw: torch.Tensor,  # noqa: ARG002
        geometries: Sequence[Letterbox],
    ) -> list[tuple[Detection, ...]]:
        return [()] * len(geometries)

    def keep(self, raw: torch.Tensor) -> torch.Tensor:
        return torch.zeros((len(raw), COLUMNS), dtype=torch.float64)

    def answers(
        self,
        tables: Sequence[Table],  # noqa: ARG002
        geometries: Sequence[Letterbox],
    ) -> list[tuple[Detection, ...]]:
        return [()] * len(geometries)


def noop_lane() -> Lane:
    """The three together."""
    return Lane(NoDecoder(), NoModel(), NoPostprocessor())
