from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.letterbox import letterbox
from pipeline.nms import _calls, find_candidates, suppress
from pipeline.postprocess import YoloPostprocessor
from schemas.errors import ConfigError
from tests.builders_predictions import crowd, raw_of

LABELS = {0: "car", 1: "bus", 2: "person"}
SAME = letterbox(640, 384, 640, 384)
"""Source and bucket are of one size: boxes stay where they are."""

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]


def a_postprocessor(**changes: object) -> YoloPostprocessor:
    chosen: dict[str, object] = {"conf": 0.25, "iou": 0.7, "max_det": 300} | changes
    return YoloPostprocessor(LABELS, **chosen)


def boxes_of(raw: torch.Tensor, **changes: object) -> list[tuple[float, ...]]:
    (found,) = a_postprocessor(**changes).detections(raw, [SAME])
    return [(*detection.box, detection.class_id, detection.score) for detection in found]


# --- what counts as a detection ---------------------------------------------------------------


def test_a_detection_has_the_box_score_class_and_label_of_its_anchor() -> None:
    (found,) = a_postprocessor().detections(raw_of((10, 20, 110, 220, 2, 0.5)), [SAME])
    assert found[0].box == (10.0, 20.0, 110.0, 220.0)
    assert (found[0].score, found[0].class_id, found[0].label) == (0.5, 2, "person")
    assert type(found[0].box[0]) is float
    assert type(found[0].score) is float


def test_a_score_equal_to_conf_is_not_above_it() -> None:
    assert boxes_of(raw_of((0, 0, 9, 9, 0, 0.25)), conf=0.25) == []
    just_above = math.nextafter(0.25, 1) + 1e-7
    assert len(boxes_of(raw_of((0, 0, 9, 9, 0, just_above)), conf=0.25)) == 1


def test_an_anchor_answers_with_its_best_class_only() -> None:
    raw = raw_of((0, 0, 50, 50, 0, 0.6))
    raw[0, 4 + 1, 0] = 0.8
    assert [row[4] for row in boxes_of(raw)] == [1]


def test_only_wanted_classes_are_reported_and_the_best_class_decides() -> None:
    raw = raw_of((0, 0, 50, 50, 0, 0.9), (100, 0, 150, 50, 1, 0.8), (200, 0, 250, 50, 2, 0.7))
    raw[0, 4 + 1, 0] = 0.5
    assert [row[4] for row in boxes_of(raw, classes=[1, 2])] == [1, 2]


def test_best_score_comes_first_and_max_det_cuts_the_rest() -> None:
    raw = raw_of(*((i * 50, 0, i * 50 + 40, 40, 0, 0.3 + 0.05 * i) for i in range(8)))
    scores = [row[5] for row in boxes_of(raw, max_det=3)]
    assert scores == pytest.approx([0.65, 0.6, 0.55])


def test_of_two_overlapping_boxes_the_better_stays_unless_their_classes_differ() -> None:
    close = [(0, 0, 100, 100), (2, 2, 102, 102)]
    assert len(boxes_of(raw_of((*close[0], 0, 0.5), (*close[1], 0, 0.9)))) == 1
    assert boxes_of(raw_of((*close[0], 0, 0.5), (*close[1], 0, 0.9)))[0][5] == pytest.approx(0.9)
    assert len(boxes_of(raw_of((*close[0], 0, 0.5), (*close[1], 1, 0.9)))) == 2


def test_equal_boxes_of_two_pictures_both_stay() -> None:
    raw = raw_of((0, 0, 100, 100, 0, 0.9)).repeat(5, 1, 1)
    assert [len(found) for found in a_postprocessor().detections(raw, [SAME] * 5)] == [1] * 5


def test_pictures_without_a_candidate_answer_with_nothing() -> None:
    raw = torch.cat([raw_of((0, 0, 9, 9, 0, score)) for score in (0.1, 0.9, 0.0)])
    assert [len(found) for found in a_postprocessor().detections(raw, [SAME] * 3)] == [0, 1, 0]
    nothing = torch.zeros((2, 7, 10))
    assert a_postprocessor().detections(nothing, [SAME] * 2) == [(), ()]
    assert a_postprocessor().detections(torch.zeros((1, 7, 0)), [SAME]) == [()]
    assert a_postprocessor().detections(torch.zeros((0, 7, 10)), []) == []


# --- source pixels ----------------------------------------------------------------------------


def test_boxes_come_back_in_source_pixels_through_an_odd_padding() -> None:
    geometry = letterbox(1001, 333, 640, 384)
    x1, y1, x2, y2 = 100.0, 33.0, 900.0, 300.0
    inside = (
        x1 * geometry.gain_x + geometry.left,
        y1 * geometry.gain_y + geometry.top,
        x2 * geometry.gain_x + geometry.left,
        y2 * geometry.gain_y + geometry.top,
    )
    (found,) = a_postprocessor().detections(raw_of((*inside, 0, 0.9)), [geometry])
    assert found[0].box == pytest.approx((x1, y1, x2, y2), abs=1e-3)


def test_boxes_are_clipped_to_the_picture() -> None:
    geometry = letterbox(320, 100, 640, 384)
    rows = raw_of((-50, -50, 900, 900, 0, 0.9), (10, 0, 60, 20, 1, 0.8))
    (found,) = a_postprocessor().detections(rows, [geometry])
    assert found[0].box == (0.0, 0.0, 320.0, 100.0)
    assert found[1].box[1] == found[1].box[3] == 0.0, "wholly in the padding above"


def test_each_picture_is_mapped_by_its_own_geometry() -> None:
    raw = raw_of((0, 0, 640, 384, 0, 0.9)).repeat(3, 1, 1)
    sizes = [(640, 384), (1920, 1152), (64, 38)]
    geometries = [letterbox(*size, 640, 384) for size in sizes]
    answers = a_postprocessor().detections(raw, geometries)
    assert [found[0].box[2:] for found in answers] == [tuple(map(float, size)) for size in sizes]


# --- broken predictions -----------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("row", range(4))
def test_a_box_that_is_not_finite_is_dropped_and_hurts_nobody(bad: float, row: int) -> None:
    good = crowd(3, 3, 3)
    broken = good.clone()
    broken[1, row, ::2] = bad
    before = a_postprocessor().detections(good, [SAME] * 3)
    after = a_postprocessor().detections(broken, [SAME] * 3)
    assert (after[0], after[2]) == (before[0], before[2])
    assert all(math.isfinite(value) for found in after[1] for value in found.box)
    without = torch.cat((good[1:2, :, 1::2],), 0)
    assert after[1] == a_postprocessor().detections(without, [SAME])[0]


def test_a_score_that_is_nan_is_no_candidate() -> None:
    raw = raw_of((0, 0, 50, 50, 0, 0.9), (100, 0, 150, 50, 1, 0.8))
    raw[0, 4 + 2, 0] = math.nan
    assert [row[4] for row in boxes_of(raw)] == [1]


@pytest.mark.parametrize("size", [1e5, 1e12, 1e30])
def test_a_wild_box_does_not_reach_into_other_pictures(size: float) -> None:
    good = crowd(4, 3, 3)
    wild = good.clone()
    wild[1, 2:4] = size
    wild[1, 0, ::2] = -size
    before = a_postprocessor().detections(good, [SAME] * 3)
    after = a_postprocessor().detections(wild, [SAME] * 3)
    assert (after[0], after[2]) == (before[0], before[2])


# --- the whole batch at once ------------------------------------------------------------------

crowds = st.builds(crowd, st.integers(0, 2**32 - 1), st.integers(1, 6), st.just(3))


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=25, deadline=None)
@given(raw=crowds)
def test_a_batch_gives_what_its_pictures_give_alone(device: str, raw: torch.Tensor) -> None:
    raw = raw.to(device)
    geometries = [letterbox(300 + 7 * i, 200 + 3 * i, 640, 384) for i in range(len(raw))]
    together = a_postprocessor().detections(raw, geometries)
    alone = [
        a_postprocessor().detections(raw[i : i + 1], geometries[i : i + 1])[0]
        for i in range(len(raw))
    ]
    assert together == alone


@settings(max_examples=25, deadline=None)
@given(raw=crowds, seed=st.integers())
def test_the_order_of_pictures_does_not_matter(raw: torch.Tensor, seed: int) -> None:
    order = list(range(len(raw)))
    random.Random(seed).shuffle(order)
    straight = a_postprocessor().detections(raw, [SAME] * len(raw))
    shuffled = a_postprocessor().detections(raw[order], [SAME] * len(raw))
    assert shuffled == [straight[i] for i in order]


@settings(max_examples=15, deadline=None)
@given(raw=crowds, limit=st.sampled_from([1, 50, 300, 10**9]))
def test_the_number_of_calls_does_not_matter(raw: torch.Tensor, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.nms._CALL_LIMIT", {"cpu": limit})
        found = a_postprocessor().detections(raw, [SAME] * len(raw))
    assert found == a_postprocessor().detections(raw, [SAME] * len(raw))


def test_no_picture_of_a_very_crowded_batch_is_left_out() -> None:
    raw = torch.cat([crowd(seed, 1, 3, anchors=1500) for seed in range(16)])
    answers = a_postprocessor(conf=0.001).detections(raw, [SAME] * 16)
    assert all(answers)


@given(counts=st.lists(st.integers(0, 50), max_size=20), limit=st.integers(1, 120))
def test_calls_cover_all_rows_in_whole_pictures(counts: list[int], limit: int) -> None:
    calls = _calls(counts, limit)
    edges = {0}
    for count in counts:
        edges.add(max(edges) + count)
    assert [row for start, stop in calls for row in range(start, stop)] == list(range(sum(counts)))
    assert all(start in edges and stop in edges for start, stop in calls)
    assert all(stop - start <= max(limit, *counts) for start, stop in calls)


def test_kept_rows_stand_by_picture_then_score() -> None:
    kept = suppress(find_candidates(crowd(9, 5, 3), 0.25), 5, 0.7, 300)
    rows = list(zip(kept.pictures.tolist(), (-kept.scores).tolist(), strict=True))
    assert rows == sorted(rows)


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"conf": -0.1},
        {"conf": 1.1},
        {"conf": math.nan},
        {"iou": 2.0},
        {"max_det": 0},
        {"classes": []},
        {"classes": [0, 3]},
        {"classes": [-1]},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    (key,) = wrong
    with pytest.raises(ConfigError, match=key):
        a_postprocessor(**wrong)


def test_a_model_without_classes_is_refused() -> None:
    with pytest.raises(ConfigError):
        YoloPostprocessor({}, conf=0.25, iou=0.7, max_det=300)


@pytest.mark.parametrize("shape", [(2, 7, 10), (1, 6, 10), (1, 8, 10), (7, 10)])
def test_predictions_of_another_shape_are_a_bug(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="predictions"):
        a_postprocessor().detections(torch.zeros(shape), [SAME])
