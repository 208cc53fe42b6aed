"""What the contract suite cannot provoke in the OpenCV decoder."""

from __future__ import annotations

import threading

import cv2
import numpy as np
import pytest
import torch

from pipeline import decode_opencv
from pipeline.decode_opencv import OpenCvDecoder, place
from pipeline.item import Item
from pipeline.letterbox import PAD_VALUE, letterbox
from schemas.errors import PoisonError, Reason, TransientError
from schemas.frame import Encoding
from tests.builders import an_item
from tests.builders_pictures import bucket, item, jpeg, picture

INTO = bucket(32, 64)


def decode_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> list[PoisonError | None]:
    def fail(_data: object) -> None:
        raise error

    monkeypatch.setattr(decode_opencv, "imdecode", fail)
    work = item(jpeg(picture(9, 9)), Encoding.JPEG, INTO)
    return OpenCvDecoder().decode([work], torch.zeros((1, 32, 64, 3), dtype=torch.uint8))


def opencv_error(code: int) -> cv2.error:
    error = cv2.error("text")
    error.code, error.err = code, "cause"
    return error


@pytest.mark.parametrize("error", [MemoryError(), opencv_error(cv2.Error.StsNoMem)])
def test_no_memory_is_not_the_pictures_fault(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pytest.raises(TransientError, match="memory"):
        decode_with(monkeypatch, error)


def test_opencvs_other_errors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = decode_with(monkeypatch, opencv_error(cv2.Error.StsAssert))
    assert error is not None
    assert error.code is Reason.DECODE_FAILED
    assert "cause" in error.detail


def test_bugs_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError):
        decode_with(monkeypatch, TypeError("a bug of ours"))


@pytest.mark.parametrize(("width", "height"), [(64, 32), (31, 31), (200, 3), (1, 90)])
def test_place_writes_every_pixel(width: int, height: int) -> None:
    pixels = np.full((height, width, 3), 200, np.uint8)
    row = np.full((32, 64, 3), 7, np.uint8)
    spot = letterbox(width, height, 64, 32)
    place(pixels, spot, row)
    inner = row[spot.top : spot.top + spot.inner_height, spot.left : spot.left + spot.inner_width]
    assert (inner == 200).all()
    assert set(np.unique(row)) <= {200, PAD_VALUE}
    assert (row == 200).sum() == inner.size


def test_when_one_picture_raises_no_other_is_still_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller runs the batch again in parts, and moves rows: a straggler would spoil them."""
    failed, running = threading.Event(), threading.Event()
    working: set[int] = set()

    def decode_row(work: Item, row: object) -> None:
        if work.frame.seq == 0:
            assert running.wait(180.0)
            failed.set()
            raise TransientError("out of memory")
        working.add(work.frame.seq)
        running.set()
        assert failed.wait(180.0)
        working.discard(work.frame.seq)

    monkeypatch.setattr(decode_opencv, "_decode_row", decode_row)
    decoder = OpenCvDecoder(threads=2)
    items = [an_item(seq=seq, size=(8, 8)) for seq in range(6)]
    into = items[0].bucket
    out = torch.zeros((6, into.height, into.width, 3), dtype=torch.uint8)
    with pytest.raises(TransientError):
        decoder.decode(items, out)
    assert not working
    decoder.close()
