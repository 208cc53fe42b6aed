"""The contact sheet's layout: rows fill the width, nothing overlaps, any mix of shapes fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frameloom.sheet import Place, Tile, contact_sheet, lay_out
from schemas.result import Detection

ASPECTS = st.lists(st.floats(0.3, 3.5), min_size=1, max_size=20)


def overlap(a: Place, b: Place) -> bool:
    beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    above = a.y + a.height <= b.y or b.y + b.height <= a.y
    return not (beside or above)


@given(ASPECTS)
@example([1.62, 3.143091138166961])
def test_tiles_keep_their_shape_stay_inside_and_do_not_overlap(aspects: list[float]) -> None:
    places = lay_out(aspects, 1900, row_height=400)
    assert len(places) == len(aspects)
    for place, aspect in zip(places, aspects, strict=True):
        assert place.x >= 0
        assert place.x + place.width <= 1900
        assert place.width / place.height == pytest.approx(aspect, rel=0.1)
    for i, place in enumerate(places):
        assert not any(overlap(place, other) for other in places[:i])


def test_every_row_but_the_last_fills_the_width() -> None:
    places = lay_out([16 / 9] * 7, 1900, row_height=400)
    rows: dict[int, list[Place]] = {}
    for place in places:
        rows.setdefault(place.y, []).append(place)
    *full, _last = rows.values()
    assert full
    for row in full:
        assert row[-1].x + row[-1].width == 1900


def test_a_single_picture_is_not_blown_up() -> None:
    (place,) = lay_out([16 / 9], 1900, row_height=400)
    assert place.height <= 460


def test_a_sheet_of_mixed_tiles_has_its_width_and_all_of_its_pictures() -> None:
    def tile(width: int, height: int, grey: int) -> Tile:
        picture = np.full((height, width, 3), grey, np.uint8)
        box = Detection((1.0, 1.0, width / 2, height / 2), 0.9, 0, "car")
        return Tile(picture, [box], f"stream {grey}", ("a caption that is far too long " * 9, "b"))

    sheet = contact_sheet(
        [tile(1920, 1080, 200), tile(108, 192, 201), tile(64, 48, 202)],
        heading="heading",
        subheading="subheading",
        width=1200,
        row_height=240,
    )
    assert sheet.shape[1] == 1200
    for grey in (200, 201, 202):
        assert (sheet == grey).all(axis=2).sum() > 1000
