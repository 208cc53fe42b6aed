"""What the comparison of a backend with torch sees, on predictions made up for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch

from pipeline.bucket import Bucket
from pipeline.exported import Shape
from pipeline.parity import (
    CONF,
    FULL,
    HALF,
    LEAST,
    Limits,
    Parity,
    answers_of,
    comparable,
    compare,
    limits_of,
    reference_shapes,
)
from pipeline.parity_pictures import digest, frames_at
from schemas.result import ModelInfo

SHAPE = Shape(64, 96, 4)
ANCHORS = 200


class Scripted:
    """A model whose predictions are the same for every picture."""

    info = ModelInfo("scripted", "0" * 12, "detect", CONF, 0.7)
    labels: Mapping[int, str] = {0: "a", 1: "b"}
    stride = 32
    device = torch.device("cpu")

    def __init__(self, row: torch.Tensor) -> None:
        self.row = row
        self.batches: list[int] = []

    def warm_up(self, buckets: Sequence[Bucket]) -> None:
        pass

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(frames))
        return self.row.expand(len(frames), *self.row.shape).clone()


def predictions(above: int = 20) -> torch.Tensor:
    """(6, ANCHORS): boxes of 20 × 10 pixels, `above` of them candidates of class 0."""
    source = torch.Generator().manual_seed(1)
    centres = torch.rand(2, ANCHORS, generator=source) * 60 + 20
    sizes = torch.tensor([[20.0], [10.0]]).expand(2, ANCHORS)
    scores = torch.full((2, ANCHORS), 0.01)
    scores[0, :above] = torch.linspace(0.9, 0.3, above) if above else scores[0, :0]
    return torch.cat((centres, sizes, scores))


def difference(changed: torch.Tensor, above: int = 20, limits: Limits = FULL) -> Parity:
    return compare(
        Scripted(changed), answers_of(Scripted(predictions(above)), [SHAPE]), limits, batch=4
    )


def test_the_same_predictions_agree() -> None:
    found = difference(predictions())
    pictures = len(frames_at(64, 96))
    assert (found.candidates, found.anchors) == (20 * pictures, LEAST * pictures)
    assert (found.iou, found.strangers) == (1.0, 0)
    assert found.score <= 1e-6
    assert found.within(FULL)


def test_weights_that_see_nothing_are_compared_all_the_same() -> None:
    found = difference(predictions(0), above=0)
    assert found.candidates == 0
    assert found.anchors > 0
    assert found.within(FULL)
    wrong = predictions(0)
    wrong[4:] += 0.1
    assert not difference(wrong, above=0).within(FULL)


def test_a_shifted_box_shows() -> None:
    changed = predictions()
    changed[0, 3] += 4.0
    found = difference(changed)
    assert found.iou == pytest.approx(16 / 24, abs=1e-3)
    assert not found.within(FULL)


def test_rounding_of_a_box_of_no_size_does_not() -> None:
    flat = predictions()
    flat[2:4] = 0.0
    moved = flat.clone()
    moved[0] += 0.2
    expected = answers_of(Scripted(flat), [SHAPE])
    assert compare(Scripted(moved), expected, FULL).within(FULL)


def test_a_score_that_moves_shows() -> None:
    changed = predictions()
    changed[4, 5] -= 0.02
    found = difference(changed)
    assert found.score == pytest.approx(0.02, abs=1e-5)
    assert not found.within(FULL)
    assert found.within(HALF)


def test_another_class_shows() -> None:
    changed = predictions()
    changed[4:, 0] = changed[4:, 0].flip(0)
    assert difference(changed).score == pytest.approx(0.89, abs=1e-3)


def test_a_box_where_there_was_none_shows() -> None:
    changed = predictions()
    changed[5, ANCHORS - 1] = 0.8
    found = difference(changed)
    assert found.strangers == len(frames_at(64, 96))
    assert not found.within(HALF)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_predictions_that_are_no_numbers_never_pass(value: float) -> None:
    changed = predictions()
    changed[0, ANCHORS - 1] = value
    assert not difference(changed).within(HALF)


def test_fewer_anchors_never_pass() -> None:
    assert not difference(predictions()[:, :40]).within(HALF)


def test_a_flipped_grid_shows_at_a_wide_and_a_tall_shape() -> None:
    shapes = [Shape(64, 96, 1), Shape(96, 64, 8), Shape(128, 192, 4), Shape(96, 96, 1)]
    assert reference_shapes(shapes) == (Shape(64, 96, 1), Shape(96, 64, 8))
    assert reference_shapes([Shape(96, 64, 1)]) == (Shape(96, 64, 1),)


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_pictures_come_in_batches_that_the_file_admits(batch: int) -> None:
    model = Scripted(predictions())
    compare(model, answers_of(Scripted(predictions()), [SHAPE]), FULL, batch=batch)
    assert max(model.batches) <= batch
    assert sum(model.batches) == len(frames_at(64, 96))


def test_answers_for_other_pictures_cannot_be_compared() -> None:
    answers = answers_of(Scripted(predictions()), [SHAPE])
    assert comparable(answers)
    assert not comparable(())
    other = type(answers[0])(answers[0].height, answers[0].width, CONF, "other", answers[0].rows)
    assert not comparable([other])


def test_pictures_are_letterboxed_rgb_and_always_the_same() -> None:
    frames = frames_at(64, 96)
    assert frames.dtype == torch.uint8
    assert frames.shape[1:] == (64, 96, 3)
    assert len(frames) >= 3, "the drawn ones at least"
    assert torch.equal(frames, frames_at(64, 96))
    assert len(digest()) == 16


def test_limits_go_by_the_backends_name() -> None:
    assert limits_of("openvino") == limits_of("torch") == FULL
    assert limits_of("torch-fp16") == HALF
