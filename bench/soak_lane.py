"""The soak's engine: the real one, on a lane whose model finds nothing, as slowly as told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch

from pipeline.batcher import Batcher
from pipeline.bucket import Bucket
from pipeline.decoders import DecoderKind, make_decoder
from pipeline.engine import Engine
from pipeline.item import Item
from pipeline.letterbox import Letterbox
from pipeline.ports import Decoder, Lane
from pipeline.slots import ThreadedDevice
from pipeline.surface import Surface
from pipeline.table import COLUMNS, Table
from pipeline.window import make_policy
from schemas.errors import PoisonError
from schemas.result import Detection, ModelInfo
from schemas.settings import Settings
from workers.assembly import Deliver, EnginePort, Fail, Machinery

INFO = ModelInfo(name="none", version="0" * 12, task="detect", conf=0.25, iou=0.7)
DECODERS = ("none", "opencv", "dali")


class NoDecoder:
    """Leaves rows as they are."""

    name = "none"

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:  # noqa: ARG002
        return [None] * len(items)

    def close(self) -> None:
        pass


class NoModel:
    """Finds nothing, after `seconds_per_batch`."""

    info = INFO
    labels: Mapping[int, str] = {}
    stride = 32
    device = torch.device("cpu")

    def __init__(self, seconds_per_batch: float) -> None:
        self.seconds_per_batch = seconds_per_batch

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        pass

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds_per_batch)
        return torch.zeros((len(frames), 1))


class NoBoxes:
    """Answers every row with no box."""

    max_det = 1

    def detections(
        self,
        raw: torch.Tensor,
        geometries: Sequence[Letterbox],  # noqa: ARG002
    ) -> list[tuple[Detection, ...]]:
        return [()] * len(raw)

    def keep(self, raw: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        return torch.zeros((0, COLUMNS), dtype=torch.float64)

    def answers(
        self,
        tables: Sequence[Table],
        geometries: Sequence[Letterbox],  # noqa: ARG002
    ) -> list[tuple[Detection, ...]]:
        return [()] * len(tables)


def a_decoder(name: str) -> Decoder:
    """One of `DECODERS`."""
    kinds: dict[str, DecoderKind] = {"opencv": "opencv", "dali": "dali"}
    return make_decoder(kinds[name], threads=2, device="cpu") if name in kinds else NoDecoder()


def machinery(settings: Settings, model: NoModel, decoder: str) -> Callable[[], Machinery]:
    """The real engine and device around the model."""
    lane = Lane(a_decoder(decoder), model, NoBoxes())

    def make_engine(deliver: Deliver, fail: Fail) -> EnginePort:
        surface = Surface()
        batcher = Batcher(make_policy(settings.window), surface)
        device = ThreadedDevice({route.name: lane for route in settings.routes})
        return Engine(batcher, surface, device, deliver=deliver, fail=fail)

    return lambda: Machinery(make_engine, {route.name: INFO for route in settings.routes})
