"""The Huffman tables that cameras leave out: put back where all are missing, and only there."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.jpeg_repair import repaired
from pipeline.jpeg_tables import STANDARD_TABLES, lacks_tables, with_tables
from tests.builders_pictures import jpeg, picture, segment, with_segments, without_tables

SMALL = picture(61, 41)


def shown(data: bytes | memoryview) -> np.ndarray:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))


def tables_of(data: bytes) -> dict[int, bytes]:
    """Class and number → lengths and values, of a JPEG or of one DHT segment."""
    found: dict[int, bytes] = {}
    at = data.find(b"\xff\xc4")
    while at >= 0:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        while body:
            end = 17 + sum(body[1:17])
            found[body[0]], body = body[1:end], body[end:]
        at = data.find(b"\xff\xc4", at + 2 + length)
    return found


def test_the_standard_tables_are_those_that_plain_encoders_write() -> None:
    assert tables_of(STANDARD_TABLES) == tables_of(jpeg(SMALL))
    assert len(STANDARD_TABLES) == 420


@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"restart_marker_rows": 1}])
def test_put_back_the_picture_is_the_same(options: dict[str, int]) -> None:
    whole = jpeg(SMALL, **options)
    bare = memoryview(without_tables(whole))
    assert lacks_tables(bare)
    assert np.array_equal(shown(with_tables(bare)), shown(whole))
    both = repaired(bare[:-2])
    assert both is not None
    assert np.array_equal(shown(both), shown(whole))


def test_whole_pictures_are_left_alone() -> None:
    for data in (jpeg(SMALL), jpeg(SMALL, optimize=True), jpeg(SMALL, progressive=True)):
        view = memoryview(data)
        assert not lacks_tables(view)
        assert repaired(view) is view
        with pytest.raises(ValueError, match="tables"):
            with_tables(view)


def test_a_progressive_picture_has_no_standard_tables() -> None:
    assert not lacks_tables(memoryview(without_tables(jpeg(SMALL, progressive=True))))


def test_tables_in_a_thumbnail_do_not_count() -> None:
    data = with_segments(without_tables(jpeg(SMALL)), segment(0xE1, STANDARD_TABLES))
    assert lacks_tables(memoryview(data))


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"\xff" * 50, jpeg(SMALL)[:100]])
def test_no_picture_at_all(data: bytes) -> None:
    assert not lacks_tables(memoryview(data))
