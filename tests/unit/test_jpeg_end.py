"""The missing end marker: put back where nothing else is missing, and only there."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.jpeg_end import lacks_end, with_end
from tests.builders_pictures import jpeg, picture, scan_start

KINDS = {
    "420": {},
    "444": {"subsampling": 0},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
}


@pytest.fixture(params=KINDS)
def whole(request: pytest.FixtureRequest) -> bytes:
    return jpeg(picture(211, 143), **KINDS[request.param])


def test_whole_pictures_lack_nothing(whole: bytes) -> None:
    assert not lacks_end(memoryview(whole))
    assert not lacks_end(memoryview(whole + bytes(10_000)))
    assert lacks_end(memoryview(whole[:-1]))
    assert lacks_end(memoryview(whole[:-2]))


def test_an_end_marker_in_the_header_does_not_count(whole: bytes) -> None:
    thumbnail = b"\xff\xe1\x00\x06\xff\xd8\xff\xd9"
    assert lacks_end(memoryview(whole[:2] + thumbnail + whole[2:-2]))


@pytest.mark.parametrize("missing", [1, 2])
def test_only_the_marker_is_missing(whole: bytes, missing: int) -> None:
    repaired = with_end(memoryview(whole)[:-missing])
    assert repaired == whole
    shown, reference = (
        cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for data in (repaired, whole)
    )
    assert np.array_equal(shown, reference)


@pytest.mark.parametrize("part", [0.0, 0.1, 0.35, 0.5, 0.75, 0.9])
def test_more_is_missing(whole: bytes, part: float) -> None:
    start = scan_start(whole)
    # One byte further, where a progressive picture happens to be cut between two scans.
    cuts = (int(start + part * (len(whole) - start)) + more for more in (0, 1, 2))
    repaired = [with_end(memoryview(whole)[:cut]) for cut in cuts]
    assert None in repaired
    if b"\xff\xc2" not in whole:
        assert repaired == [None, None, None]


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\x00\x04ab", b"\xff" * 50]
)
def test_no_picture_at_all(data: bytes) -> None:
    assert not lacks_end(memoryview(data))
    assert with_end(memoryview(data)) is None
