"""Every answer equals Ultralytics' own for that picture, alone and in mixed batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ultralytics.utils.nms import non_max_suppression

from bench.parity import BUCKETS, CONF, DEMO_WEIGHTS, IOU, MAX_DET, compare, measure
from bench.parity_pictures import photographs, samples
from bench.random_weights import write_random_yolov8
from pipeline.bucket import Bucket
from pipeline.nms import find_candidates, suppress
from schemas.result import Detection
from tests.builders_predictions import crowd


@pytest.fixture(scope="module", params=["demo", "random YOLOv8n"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "demo":
        return DEMO_WEIGHTS
    return write_random_yolov8(tmp_path_factory.mktemp("weights") / "random.pt")


@pytest.mark.parametrize("bucket", BUCKETS, ids=lambda bucket: bucket.name)
def test_answers_equal_the_reference_call(weights: Path, bucket: Bucket) -> None:
    knows_photographs = weights != DEMO_WEIGHTS
    pictures = (*photographs(), *samples()) if knows_photographs else samples()
    tally = measure(weights, bucket, pictures)
    assert tally.voids == 0, f"{tally.voids} of {len(tally.differences)} compare nothing"
    assert tally.miscounts == 0
    assert tally.iou >= 0.99
    assert tally.score <= 0.01


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 6), classes=st.integers(1, 80))
def test_suppression_keeps_what_ultralytics_keeps(seed: int, n: int, classes: int) -> None:
    raw = crowd(seed, n, classes)
    theirs = non_max_suppression(raw.clone(), CONF, IOU, max_det=MAX_DET)
    ours = suppress(find_candidates(raw, CONF), n, IOU, MAX_DET)
    for picture, rows in enumerate(theirs):
        mine = ours.take(ours.pictures == picture)
        assert torch.equal(mine.boxes, rows[:, :4])
        assert torch.equal(mine.scores, rows[:, 4])
        assert torch.equal(mine.classes.float(), rows[:, 5])


def test_suppression_takes_the_best_candidates_ultralytics_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.nms.MAX_CANDIDATES", 50)
    raw = crowd(1, 4, 3)
    theirs = non_max_suppression(raw.clone(), CONF, IOU, max_nms=50)
    found = find_candidates(raw, CONF)
    assert len(found) > 4 * 50
    ours = suppress(found, 4, IOU, MAX_DET)
    for picture, rows in enumerate(theirs):
        mine = ours.take(ours.pictures == picture)
        assert torch.equal(mine.boxes, rows[:, :4])
        assert torch.equal(mine.scores, rows[:, 4])


BOX = (10.0, 20.0, 30.0, 60.0)


@pytest.mark.parametrize(
    ("found", "iou", "score"),
    [
        ([Detection(BOX, 0.9, 1, "car")], 1.0, 0.0),
        ([Detection(BOX, 0.8, 1, "car")], 1.0, 0.1),
        ([Detection((10.0, 20.0, 30.0, 40.0), 0.9, 1, "car")], 0.5, 0.0),
        ([Detection(BOX, 0.9, 2, "truck")], 0.0, 0.0),
        ([Detection(BOX, 0.9, 1, "truck")], 0.0, 0.0),
    ],
)
def test_the_comparison_sees_every_kind_of_difference(
    found: list[Detection], iou: float, score: float
) -> None:
    difference = compare([Detection(BOX, 0.9, 1, "car")], found)
    assert difference.iou == pytest.approx(iou)
    assert difference.score == pytest.approx(score)


def test_the_comparison_counts() -> None:
    one = Detection(BOX, 0.9, 1, "car")
    assert compare([], []).void
    lost, more = compare([one, one], [one]), compare([one], [one, one])
    assert (lost.expected, lost.found) == (2, 1)
    assert (more.expected, more.found) == (1, 2)
