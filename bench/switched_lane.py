"""A lane that can be switched off: what is still inside then passes at once, as frames without
detections. A round that has been measured need not wait for its backlog."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

import torch

from pipeline.bucket import Bucket
from pipeline.item import Item
from pipeline.ports import Decoder, Lane, Model
from pipeline.stand_in import StandIn
from schemas.errors import PoisonError

_ENGINE = logging.getLogger("pipeline.engine")
"""Warns of batches that take other times than were measured, as those that pass at once do."""


class Switch:
    """On at first; once off it stays off, and the engine says nothing of its batches' times until
    there is another switch. Any thread may turn it."""

    def __init__(self) -> None:
        self._off = threading.Event()
        _ENGINE.setLevel(logging.NOTSET)

    @property
    def is_on(self) -> bool:
        return not self._off.is_set()

    def off(self) -> None:
        _ENGINE.setLevel(logging.ERROR)
        self._off.set()


def switched(lane: Lane, switch: Switch) -> Lane:
    """The same lane while the switch is on; its post-processor has nothing to do afterwards."""
    return replace(
        lane,
        decoder=SwitchedDecoder(lane.decoder, switch),
        model=SwitchedModel(lane.model, switch),
    )


class SwitchedDecoder:
    """Leaves rows as they are while it is off. Implements `Decoder`."""

    def __init__(self, decoder: Decoder, switch: Switch) -> None:
        self._decoder = decoder
        self._switch = switch

    @property
    def name(self) -> str:
        return self._decoder.name

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        """See `Decoder.decode`."""
        return self._decoder.decode(items, out) if self._switch.is_on else [None] * len(items)

    def close(self) -> None:
        """See `Decoder.close`."""
        self._decoder.close()


class SwitchedModel(StandIn[Model]):
    """Predicts nothing while it is off. Implements `Model`."""

    def __init__(self, model: Model, switch: Switch) -> None:
        super().__init__(model)
        self._switch = switch

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        """See `Model.warm_up`."""
        self._model.warm_up(buckets)

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        """See `Model.infer`; one anchor without a score while it is off."""
        if self._switch.is_on:
            return self._model.infer(frames)
        return torch.zeros((len(frames), 4 + len(self._model.labels), 1))
