"""What a model and one that stands in for it have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from pipeline.ports import Model
from schemas.result import ModelInfo

if TYPE_CHECKING:
    import torch

M = TypeVar("M", bound=Model)


class StandIn(Generic[M]):
    """The part of `Model` that describes it, as the model behind describes itself.

    Args:
        model: the one behind.
    """

    def __init__(self, model: M) -> None:
        self._model = model

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    @property
    def labels(self) -> Mapping[int, str]:
        return self._model.labels

    @property
    def stride(self) -> int:
        return self._model.stride

    @property
    def device(self) -> torch.device:
        return self._model.device
