"""What is peculiar to GIF: the screen and the first frame in it, and how both are shown."""

from __future__ import annotations

import struct

import cv2
import numpy as np
import pytest

from pipeline.decode_gif import decode_gif
from pipeline.item import Header
from pipeline.probe_gif import MAX_BLOCKS, first_frame, read_gif
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_formats import gif, gif_inside
from tests.builders_pictures import picture

SMALL = picture(61, 41)
SCREEN = b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"


def an_image(left: int, top: int, width: int, height: int) -> bytes:
    return b"," + struct.pack("<HHHHB", left, top, width, height, 0) + b"\2\2\x44\1\0;"


def refusal(data: bytes) -> Reason:
    with pytest.raises(PoisonError) as caught:
        read_gif(memoryview(data))
    return caught.value.code


def test_the_screen_is_what_is_shown() -> None:
    assert read_gif(memoryview(gif_inside(SMALL, 9))) == Header(Encoding.GIF, 88, 50)
    frame = first_frame(memoryview(gif_inside(SMALL, 9)))
    assert (frame.left, frame.top, frame.width, frame.height) == (18, 4, 61, 41)


def test_the_last_graphic_control_before_the_frame_counts() -> None:
    control = b"!\xf9\4\1\0\0\7\0"
    none = b"!\xf9\4\0\0\0\7\0"
    image = an_image(0, 0, 4, 4)
    assert first_frame(memoryview(SCREEN + control + image)).transparent == 7
    assert first_frame(memoryview(SCREEN + control + none + image)).transparent is None
    assert first_frame(memoryview(SCREEN + image + control)).transparent is None


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (SCREEN + an_image(1, 0, 4, 4), Reason.BAD_HEADER),
        (SCREEN + an_image(0, 1, 4, 4), Reason.BAD_HEADER),
        (SCREEN + an_image(0, 0, 0, 4), Reason.BAD_HEADER),
        (SCREEN + b";", Reason.TRUNCATED_HEADER),
        (SCREEN + b"; and more", Reason.BAD_HEADER),
        (SCREEN + b"!\xfe\0" * (MAX_BLOCKS + 1) + an_image(0, 0, 4, 4), Reason.BAD_HEADER),
        (SCREEN + b"!\xfe" + b"\1x" * (MAX_BLOCKS + 1) + b"\0", Reason.BAD_HEADER),
        (SCREEN[:10] + b"\0\0\0" + an_image(0, 0, 4, 4), Reason.BAD_HEADER),
    ],
    ids=["right", "below", "empty", "cut", "no frame", "extensions", "blocks", "no colours"],
)
def test_what_a_gif_may_not_say(data: bytes, code: Reason) -> None:
    assert refusal(data) is code


def test_pixels_are_opencvs_wherever_the_frame_lies() -> None:
    for data in (gif(SMALL), gif_inside(SMALL), gif(SMALL, transparency=9, background=3)):
        shown = decode_gif(memoryview(data))
        expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        assert np.array_equal(shown, expected)


def test_codes_that_only_clear_the_table_end_soon() -> None:
    """OpenCV takes 40 ms for these 3 KB, and two minutes for 8 MB."""
    data = SCREEN + b"," + struct.pack("<HHHHB", 0, 0, 4, 4, 0) + b"\2"
    data += (b"\xff" + b"\x24\x49\x92" * 85) * 2000 + b"\0;"
    assert isinstance(decode_gif(memoryview(data)), PoisonError)


@pytest.mark.parametrize("cut", [400, 900, 1500])
def test_a_cut_gif_is_refused(cut: int) -> None:
    shown = decode_gif(memoryview(gif(SMALL)[:cut]))
    assert isinstance(shown, PoisonError)
    assert (shown.code, shown.stage) == (Reason.DECODE_FAILED, "decode")


def test_an_index_without_a_colour_is_black() -> None:
    """OpenCV refuses such a file."""
    data = bytearray(gif(SMALL, 256))
    data[10] = data[10] & 0xF8  # two colours instead of 256
    short = bytes(data[:13]) + b"\0\0\0\xff\xff\xff" + bytes(data[13 + 768 :])
    shown = decode_gif(memoryview(short))
    assert isinstance(shown, np.ndarray)
    assert set(np.unique(shown)) <= {0, 255}
