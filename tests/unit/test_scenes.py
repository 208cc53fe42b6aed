"""Drawn scenes: the same for the same seed, alike at every size, and true about themselves."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.scene_backdrop import fill_fixed
from bench.scene_match import overlap_of
from bench.scene_street import lay_out
from bench.scene_traffic import CAR, CYCLIST, PERSON, Placed, Traffic, lay_tracks
from bench.scene_truth import TruthMap
from bench.scenes import CLASSES, Match, Scene, Truth, match

SIZES = [(427, 240), (240, 427), (333, 217), (64, 64), (700, 120), (120, 700), (17, 5), (1, 1)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_scene_can_be_drawn_at_any_size(width: int, height: int) -> None:
    picture, truths = Scene(4, width, height).frame(1.5)
    assert picture.shape == (height, width, 3)
    assert picture.dtype == np.uint8
    assert picture.flags.c_contiguous
    for truth in truths:
        x1, y1, x2, y2 = truth.box
        assert 0 <= x1 < x2 <= width
        assert 0 <= y1 < y2 <= height
        assert 0 < truth.visible <= 1
        assert 0 <= truth.class_id < len(CLASSES)
    assert len({truth.object_id for truth in truths}) == len(truths)


def test_no_picture_has_no_side() -> None:
    with pytest.raises(ValueError, match="at least one pixel"):
        Scene(1, 0, 10)


def test_the_same_seed_size_and_time_give_the_same_frame_in_whatever_order_they_are_asked() -> None:
    one, other = Scene(7, 320, 180), Scene(7, 320, 180)
    for t in (9.0, 0.25):
        other.frame(t)
    first, truths = one.frame(0.25)
    again, truths_again = other.frame(0.25)
    assert np.array_equal(first, again)
    assert truths == truths_again


def test_a_frame_is_its_callers_to_change() -> None:
    scene = Scene(7, 160, 90)
    before, _ = scene.frame(1.0)
    kept = before.copy()
    before[:] = 0
    assert np.array_equal(scene.frame(1.0)[0], kept)


def test_other_seeds_and_other_times_give_other_pictures() -> None:
    scene = Scene(1, 160, 90)
    assert not np.array_equal(scene.frame(0.0)[0], Scene(2, 160, 90).frame(0.0)[0])
    assert not np.array_equal(scene.frame(0.0)[0], scene.frame(0.04)[0])


def test_a_scene_is_alike_at_every_size_of_one_aspect() -> None:
    _, small = Scene(3, 320, 180).frame(2.0)
    _, large = Scene(3, 1280, 720).frame(2.0)
    pairs = {t.object_id: t for t in large}
    seen = [t for t in small if t.visible > 0.2]
    assert len(seen) > 4
    for truth in seen:
        twin = pairs[truth.object_id]
        assert twin.class_id == truth.class_id
        assert twin.visible == pytest.approx(truth.visible, abs=0.05)
        assert np.allclose(np.asarray(twin.box) / 4, truth.box, atol=1.5)


def test_objects_keep_their_identity_and_class_while_they_move() -> None:
    scene = Scene(5, 427, 240)
    known: dict[int, int] = {}
    moved = 0.0
    where: dict[int, float] = {}
    for k in range(20):
        for truth in scene.frame(k / 10)[1]:
            assert known.setdefault(truth.object_id, truth.class_id) == truth.class_id
            middle = (truth.box[0] + truth.box[2]) / 2
            moved = max(moved, abs(middle - where.setdefault(truth.object_id, middle)))
    assert len(known) >= 6
    assert moved > 20


@pytest.mark.parametrize("objects", [0, 1, 6])
def test_no_more_objects_than_asked_for(objects: int) -> None:
    for seed in range(5):
        assert len(Scene(seed, 213, 120, objects=objects).frame(seed)[1]) <= objects


def test_every_class_occurs() -> None:
    seen = {truth.class_id for s in range(12) for truth in Scene(s, 213, 120).frame(0.0)[1]}
    assert seen == set(range(len(CLASSES)))


@pytest.mark.parametrize("seed", range(6))
def test_boxes_fit_what_is_painted(seed: int) -> None:
    """Each object painted alone on black; an antialiased rim may add a pixel."""
    width, height = 427, 240
    street = lay_out(np.random.default_rng(seed), width / height, 1.0)
    for thing in Traffic(seed, street, float(height), None).at(4.0):
        canvas = np.zeros((height, width, 3), np.uint8)
        for points in thing.points:
            fill_fixed(canvas, points, (255, 255, 255))
        ys, xs = np.nonzero(canvas[..., 0] > 127)
        (truth,) = TruthMap(width, height).truths([thing])
        painted = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
        assert np.allclose(truth.box, painted, atol=1.5)
        if painted[0] > 1 and painted[2] < width - 1:
            assert truth.visible == 1.0


def _standing(seed: int, class_id: int) -> Placed:
    """Some object of a class that stands wholly inside a 427x240 picture."""
    street = lay_out(np.random.default_rng(seed), 427 / 240, 1.0)
    for t in range(100):
        for thing in Traffic(seed, street, 240.0, None).at(float(t)):
            x1, y1, x2, y2 = thing.extent
            inside = min(x1, y1, 427 - x2, 240 - y2) > 1
            if thing.look.class_id == class_id and inside:
                return thing
    raise AssertionError("none came by")


def test_what_stands_behind_something_equal_cannot_be_seen() -> None:
    thing = _standing(1, CAR)
    (truth,) = TruthMap(427, 240).truths([thing, thing])
    assert truth.visible == 1.0
    assert np.allclose(truth.box, thing.extent)


def test_occlusion_lowers_what_is_visible_and_draws_the_box_in() -> None:
    """A second car that covers the right part of the first."""
    behind = _standing(1, CAR)
    x1, y1, x2, y2 = behind.extent
    shift = (x2 - x1) * 0.4
    before = Placed(
        look=behind.look,
        parts=behind.parts,
        points=[
            p + np.int32(round(shift * 16)) * np.asarray((1, 0), np.int32) for p in behind.points
        ],
        cells=[
            c + np.int32(round(shift * 1.5 * 16)) * np.asarray((1, 0), np.int32)
            for c in behind.cells
        ],
        extent=(x1 + shift, y1, x2 + shift, y2),
        centre=behind.centre,
        ground=behind.ground,
        scale=behind.scale,
        way=behind.way,
        object_id=behind.object_id + 1,
    )
    covered, whole = TruthMap(427, 240).truths([behind, before])
    assert whole.visible == pytest.approx(1.0, abs=0.02) or x2 + shift > 427
    assert 0.3 < covered.visible < 0.7
    assert covered.box[0] == pytest.approx(x1)
    assert covered.box[2] <= x2


def test_vehicles_of_a_lane_keep_clear_of_one_another() -> None:
    for seed in range(30):
        street = lay_out(np.random.default_rng(seed), 16 / 9, 1.0)
        traffic = Traffic(seed, street, 1000.0, None)
        for t in (0.0, 7.7, 61.3):
            lanes: dict[float, list[Placed]] = {}
            for thing in traffic.at(t):
                if thing.look.class_id not in (PERSON, CYCLIST):
                    lanes.setdefault(thing.ground, []).append(thing)
            for things in lanes.values():
                things.sort(key=lambda thing: thing.extent[0])
                for left, right in pairwise(things):
                    assert left.extent[2] <= right.extent[0]


def test_asking_for_objects_takes_tracks_that_always_bring_one() -> None:
    rng = np.random.default_rng(1)
    tracks = lay_tracks(rng, lay_out(rng, 1.78, 1.0), 5)
    assert [track.fill for track in tracks] == [1.0] * 5


# match


def _truth(x: float, *, class_id: int = 0, visible: float = 1.0) -> Truth:
    return Truth((x, 0.0, x + 10.0, 10.0), class_id, visible, int(x))


def _box(x: float) -> tuple[float, float, float, float]:
    return (x, 0.0, x + 10.0, 10.0)


def test_a_hit_a_miss_and_a_false_alarm() -> None:
    truths = [_truth(0), _truth(100)]
    assert match(truths, [(_box(1), 0.9, 0), (_box(50), 0.8, 0)]) == Match(tp=1, fp=1, fn=1)


def test_the_class_must_agree() -> None:
    assert match([_truth(0)], [(_box(0), 0.9, 1)]) == Match(fp=1, fn=1)


def test_a_second_detection_of_one_object_is_wrong() -> None:
    found = [(_box(0), 0.9, 0), (_box(1), 0.8, 0)]
    assert match([_truth(0)], found) == Match(tp=1, fp=1)


def test_the_better_score_takes_the_object_first() -> None:
    truths = [_truth(0), _truth(3)]
    assert match(truths, [(_box(3), 0.5, 0), (_box(2), 0.9, 0)], iou=0.8) == Match(tp=1, fp=1, fn=1)


def test_barely_visible_objects_are_neither_missed_nor_wrong() -> None:
    barely = _truth(0, visible=0.1)
    assert match([barely], []) == Match(ignored=1)
    assert match([barely], [(_box(0), 0.9, 0)]) == Match(ignored=1)
    assert match([barely], [(_box(0), 0.9, 0)], min_visible=0.1) == Match(tp=1)


def test_an_object_that_counts_goes_before_a_barely_visible_one() -> None:
    truths = [_truth(0, visible=0.1), _truth(2)]
    assert match(truths, [(_box(0), 0.9, 0)]) == Match(tp=1, ignored=1)


def test_counts_add_up_to_shares() -> None:
    total = Match(3, 1, 0, 2) + Match(1, 0, 4, 0)
    assert total == Match(4, 1, 4, 2)
    assert total.recall == 0.5
    assert total.precision == 0.8
    assert (Match().recall, Match().precision) == (1.0, 1.0)


_boxes = st.tuples(
    st.integers(0, 30), st.integers(0, 30), st.integers(1, 20), st.integers(1, 20)
).map(lambda v: (float(v[0]), float(v[1]), float(v[0] + v[2]), float(v[1] + v[3])))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(_boxes, st.integers(0, 1), st.sampled_from([0.1, 1.0])), max_size=6),
    st.lists(st.tuples(_boxes, st.floats(0, 1), st.integers(0, 1)), max_size=6),
)
def test_every_truth_is_counted_once_and_no_detection_twice(
    objects: list[tuple[tuple[float, float, float, float], int, float]],
    detections: list[tuple[tuple[float, float, float, float], float, int]],
) -> None:
    truths = [Truth(box, c, visible, i) for i, (box, c, visible) in enumerate(objects)]
    got = match(truths, detections)
    assert got.tp + got.fn + got.ignored == len(truths)
    assert got.tp + got.fp <= len(detections)
    assert min(got.tp, got.fp, got.fn) >= 0


@given(_boxes, _boxes)
def test_overlap_is_symmetric_and_whole_only_for_equals(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> None:
    assert overlap_of(a, b) == pytest.approx(overlap_of(b, a))
    assert 0.0 <= overlap_of(a, b) <= 1.0
    assert overlap_of(a, a) == 1.0
    if a != b:
        assert overlap_of(a, b) < 1.0
