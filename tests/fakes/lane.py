"""A lane without pictures or weights: it decodes by reading a byte and detects what it decoded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import torch

from pipeline.bucket import Bucket
from pipeline.item import Item
from pipeline.letterbox import Letterbox
from pipeline.ports import BatchDone, Lane
from pipeline.table import COLUMNS, Table, by_picture
from schemas.errors import PoisonError, Reason
from schemas.result import Detection, ModelInfo
from tests.builders import an_item

BAD_PICTURE = b"\xff"


class FakeDecoder:
    """Fills a row with the frame's first byte; `BAD_PICTURE` cannot be decoded."""

    name = "fake"

    def __init__(self) -> None:
        self.closed = False
        self.before: Callable[[Sequence[Item]], None] = lambda items: None

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        self.before(items)
        errors: list[PoisonError | None] = []
        for index, item in enumerate(items):
            if bytes(item.frame.data) == BAD_PICTURE:
                errors.append(PoisonError(Reason.DECODE_FAILED, "marked bad", stage="decode"))
            else:
                out[index].fill_(item.frame.data[0])
                errors.append(None)
        return errors

    def close(self) -> None:
        self.closed = True


class FakeModel:
    """Answers every frame with its grey level; `before` may raise or block."""

    info = ModelInfo(name="fake", version="0" * 12, task="detect", conf=0.25, iou=0.7)
    labels: Mapping[int, str] = {0: "grey"}
    stride = 1
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.batch_sizes: list[int] = []
        self.before: Callable[[list[int]], None] = lambda levels: None
        self.threads: set[int] = set()

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        pass

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        return self.forward(frames)

    def kept(self) -> object:
        return None

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        self.threads.add(threading.get_ident())
        levels = [int(level) for level in frames[:, 0, 0, 0]]
        self.before(levels)
        self.batch_sizes.append(len(levels))
        return frames[:, :1, :1, 0].to(torch.float32)


class FakePostprocessor:
    """One detection per row, its class the grey level; `before` and `before_answers` may raise."""

    max_det = 1

    def __init__(self) -> None:
        self.before: Callable[[torch.Tensor], None] = lambda raw: None
        self.before_answers: Callable[[Sequence[Table]], None] = lambda tables: None

    def detections(
        self, raw: torch.Tensor, geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        return self.answers(by_picture(self.keep(raw).numpy(), len(raw)), geometries)

    def keep(self, raw: torch.Tensor) -> torch.Tensor:
        self.before(raw)
        table = torch.zeros((len(raw), COLUMNS), dtype=torch.float64)
        table[:, 0] = torch.arange(len(raw))
        table[:, 6] = raw[:, 0, 0]
        return table

    def answers(
        self, tables: Sequence[Table], geometries: Sequence[Letterbox]
    ) -> list[tuple[Detection, ...]]:
        assert len(tables) == len(geometries)
        self.before_answers(tables)
        return [
            tuple(Detection((0.0, 0.0, 1.0, 1.0), 0.5, int(row[6]), "grey") for row in table)
            for table in tables
        ]


def a_lane() -> Lane:
    return Lane(FakeDecoder(), FakeModel(), FakePostprocessor())


def pictures(*levels: int | None) -> list[Item]:
    """Items whose data says their level, which the fake model detects; None for a bad picture."""
    return [
        an_item(f"cam{i}", data=BAD_PICTURE if level is None else bytes([level]))
        for i, level in enumerate(levels)
    ]


def levels_of(done: BatchDone) -> list[int | Reason]:
    """What was found per item: its level, or why it was refused."""
    return [
        outcome.error.code if outcome.error is not None else outcome.detections[0].class_id
        for outcome in done.outcomes
    ]
