"""The geometry: Ultralytics' to the pixel, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ultralytics.data.augment import LetterBox

from pipeline.letterbox import PAD_VALUE, letterbox

SOURCE = st.integers(1, 5000)
TARGET = st.integers(1, 48).map(lambda strides: strides * 32)


@settings(max_examples=300, deadline=None)
@given(SOURCE, SOURCE, TARGET, TARGET)
@example(1, 4000, 640, 384)
@example(4000, 1, 640, 384)
@example(1, 1, 640, 384)
@example(1919, 1079, 640, 384)
def test_is_ultralytics(source_width: int, source_height: int, width: int, height: int) -> None:
    place = letterbox(source_width, source_height, width, height)
    reference = LetterBox((height, width), auto=False, scaleup=True)
    # A view of one pixel has the shape that the reference asks for and costs no memory.
    pixels = np.broadcast_to(np.uint8(0), (source_height, source_width, 3))
    params = reference.get_params({"img": pixels})
    assert (place.inner_width, place.inner_height) == params["new_unpad"]
    assert (place.left, place.top) == (params["left"], params["top"])
    assert place.left + place.inner_width + params["right"] == width
    assert place.top + place.inner_height + params["bottom"] == height
    assert reference.padding_value == PAD_VALUE


@given(SOURCE, SOURCE, TARGET, TARGET)
def test_lies_inside_the_bucket(
    source_width: int, source_height: int, width: int, height: int
) -> None:
    place = letterbox(source_width, source_height, width, height)
    assert place.inner_width >= 1
    assert place.inner_height >= 1
    assert 0 <= place.left <= place.left + place.inner_width <= width
    assert 0 <= place.top <= place.top + place.inner_height <= height
    assert width == place.inner_width or height == place.inner_height
    assert 0.0 <= place.padding < 1.0
    assert (place.width, place.height) == (width, height)
    assert (place.source_width, place.source_height) == (source_width, source_height)


def test_same_shape_needs_no_padding() -> None:
    place = letterbox(1920, 1152, 640, 384)
    assert place.padding == 0.0
    assert (place.left, place.top, place.gain_x, place.gain_y) == (0, 0, 1 / 3, 1 / 3)


def test_gains_are_per_axis() -> None:
    """A clamped side is stretched: one gain for both axes would misplace its boxes."""
    place = letterbox(1, 4000, 640, 384)
    assert (place.inner_width, place.inner_height) == (1, 384)
    assert place.gain_x == 1.0
    assert place.gain_y == 384 / 4000


@pytest.mark.parametrize("sizes", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, -1)])
def test_sizes_below_one_are_refused(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="≥ 1"):
        letterbox(*sizes)
