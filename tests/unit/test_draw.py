"""Drawing: boxes lie where they should, chips stay inside, colours stay apart, frames decode."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.draw import Picture, annotate, colour_of, decode_picture, text_on
from schemas.errors import PoisonError
from schemas.frame import Claim, Encoding, FrameMessage
from schemas.result import Detection
from tests.builders_formats import gif, tiff, turned_avif
from tests.builders_pictures import oriented, picture, png


def a_canvas(width: int = 200, height: int = 120) -> Picture:
    return np.full((height, width, 3), 128, np.uint8)


def a_frame(data: bytes, encoding: Encoding, width: int = 0, height: int = 0) -> FrameMessage:
    return FrameMessage(
        stream_id="cam",
        seq=0,
        captured_at_us=0,
        encoding=encoding,
        data=memoryview(data),
        width=width or None,
        height=height or None,
    )


def test_a_box_is_drawn_in_its_class_colour_and_the_picture_is_not_touched() -> None:
    canvas = a_canvas()
    drawn = annotate(canvas, [Detection((50.0, 50.0, 150.0, 100.0), 0.9, 2, "bus")])
    assert (canvas == 128).all()
    assert tuple(int(v) for v in drawn[75, 50][::-1]) == colour_of(2)
    assert (drawn[76:99, 60:140] == 128).all()


def test_without_detections_nothing_changes() -> None:
    canvas = a_canvas()
    assert np.array_equal(annotate(canvas, []), canvas)


@given(
    st.lists(st.floats(-20.0, 250.0), min_size=4, max_size=4),
    st.integers(1, 250),
    st.integers(1, 250),
    st.text(max_size=30),
)
def test_any_box_label_and_size_can_be_drawn(
    sides: list[float], width: int, height: int, label: str
) -> None:
    x1, x2 = sorted(sides[:2])
    y1, y2 = sorted(sides[2:])
    drawn = annotate(a_canvas(width, height), [Detection((x1, y1, x2, y2), 0.5, 7, label)])
    assert drawn.shape == (height, width, 3)


def test_lines_grow_with_the_picture() -> None:
    def thickness(scale: int) -> int:
        canvas = a_canvas(480 * scale, 480 * scale)
        box = (100.0 * scale, 100.0 * scale, 400.0 * scale, 400.0 * scale)
        drawn = annotate(canvas, [Detection(box, 0.9, 0, "car")])
        row = drawn[250 * scale, : 200 * scale, ::-1]
        return int((row == colour_of(0)).all(axis=1).sum())

    assert thickness(4) == 4 * thickness(1)


def test_colours_of_the_first_hundred_classes_differ_and_carry_text() -> None:
    colours = [colour_of(i) for i in range(100)]
    assert len(set(colours)) == 100
    for colour in colours:
        assert abs(sum(colour) - sum(text_on(colour))) > 150


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_as_results_count_pixels(orientation: int) -> None:
    data = oriented(picture(60, 40), Encoding.JPEG, orientation)
    shown = decode_picture(a_frame(data, Encoding.JPEG))
    assert shown.shape[:2] == ((60, 40) if orientation >= 5 else (40, 60))


def test_raw_encodings_are_shown_in_their_colours() -> None:
    blue = np.zeros((4, 6, 3), np.uint8)
    blue[..., 0] = 255
    assert (decode_picture(a_frame(blue.tobytes(), Encoding.BGR24, 6, 4)) == blue).all()
    rgb = np.ascontiguousarray(blue[..., ::-1]).tobytes()
    assert (decode_picture(a_frame(rgb, Encoding.RGB24, 6, 4)) == blue).all()
    grey = decode_picture(a_frame(bytes([77] * 24), Encoding.GRAY8, 6, 4))
    assert grey.shape == (4, 6, 3)
    assert (grey == 77).all()
    white = bytes([235] * 24 + [128] * 12)
    assert decode_picture(a_frame(white, Encoding.NV12, 6, 4)).min() >= 250


@pytest.mark.parametrize("orientation", range(1, 9))
def test_other_formats_are_turned_as_results_count_pixels(orientation: int) -> None:
    pixels = picture(60, 40)
    for data, encoding in (
        (tiff(pixels, orientation=orientation), Encoding.TIFF),
        (turned_avif(pixels, orientation), Encoding.AVIF),
    ):
        shown = decode_picture(a_frame(data, encoding))
        assert shown.shape[:2] == ((60, 40) if orientation >= 5 else (40, 60))


def test_a_gif_is_shown() -> None:
    pixels = picture(33, 21)
    shown = decode_picture(a_frame(gif(pixels), Encoding.GIF))
    assert np.abs(shown.astype(int) - pixels).mean() < 8
    with pytest.raises(PoisonError):
        decode_picture(a_frame(gif(pixels)[:400], Encoding.GIF))


def test_png_is_shown_bit_for_bit() -> None:
    pixels = picture(33, 21)
    shown = decode_picture(a_frame(png(pixels), Encoding.PNG))
    assert np.array_equal(shown, pixels)


@pytest.mark.parametrize("data", [b"", b"no picture at all", b"\xff\xd8\xff\xe0"])
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(PoisonError):
        decode_picture(a_frame(data, Encoding.JPEG))


def test_a_claim_is_not_fetched_for_drawing() -> None:
    claim = Claim(uri="https://h/a.jpg", sha256="0" * 64, length=1)
    with pytest.raises(PoisonError, match="only names its picture"):
        decode_picture(msgspec.structs.replace(a_frame(b"", Encoding.JPEG), claim=claim))
