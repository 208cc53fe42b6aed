"""BMP, TIFF, GIF and AVIF in every decoder: OpenCV's pixels, turned as the file says, beside other
pictures; and one that is broken costs only itself."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pipeline.item import Item
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_formats import FORMATS, avif, bmp_top_down, gif, tiff, turned_avif
from tests.builders_pictures import Pixels, bucket, item, jpeg, picture, sixteen_bit
from tests.contract.subject import Subject, reference_of

WIDE = bucket(256, 448)
SMALL = picture(97, 65)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_kind(subject: Subject, kind: str) -> None:
    encoding, encode = FORMATS[kind]
    work = item(encode(picture(211, 143)), encoding, WIDE)
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0])


def test_all_kinds_share_batches(subject: Subject) -> None:
    works = [item(jpeg(SMALL), Encoding.JPEG, WIDE)]
    for index, (encoding, encode) in enumerate(FORMATS.values()):
        works.append(item(encode(picture(71 + index, 50 + index)), encoding, WIDE))
        if index % 4 == 0:
            works.append(works[0])
    for start in range(0, len(works), 16):
        batch = works[start : start + 16]
        errors, rows = subject.decode(batch)
        assert errors == [None] * len(batch)
        for work, row in zip(batch, rows, strict=True):
            subject.check(work, row, work.header.encoding)


def _shown(pixels: Pixels, orientation: int) -> Pixels:
    """As EXIF's orientation 1 to 8 displays stored pixels."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels[::-1] if orientation in (3, 4, 7, 8) else pixels)


def _check_turned(subject: Subject, work: Item, stored: Pixels, orientation: int) -> None:
    assert work.header.orientation == orientation
    errors, rows = subject.decode([work])
    assert errors == [None]
    expected = reference_of(_shown(stored, orientation), WIDE)
    assert np.abs(rows[0] - expected).max() == 0


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", "<>")
def test_a_tiff_is_turned_as_its_tag_says(subject: Subject, order: str, orientation: int) -> None:
    for pixels, options in (
        (SMALL, {"rows": 7}),
        (SMALL, {"tile": 32}),
        (sixteen_bit(SMALL), {"rows": 7}),
    ):
        data = tiff(pixels, order=order, orientation=orientation, **options)
        plain = np.frombuffer(tiff(pixels), np.uint8)
        stored = np.asarray(cv2.imdecode(plain, cv2.IMREAD_COLOR), np.uint8)
        _check_turned(subject, item(data, Encoding.TIFF, WIDE), stored, orientation)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_avif_is_turned_as_its_properties_say(subject: Subject, orientation: int) -> None:
    data = np.frombuffer(avif(SMALL), np.uint8)
    stored = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)
    work = item(turned_avif(SMALL, orientation), Encoding.AVIF, WIDE)
    _check_turned(subject, work, stored, orientation)


def test_top_down_is_the_same_picture(subject: Subject) -> None:
    data = bmp_top_down(SMALL)
    _check_turned(subject, item(data, Encoding.BMP, WIDE), SMALL, 1)


# --- broken pictures ----------------------------------------------------------------------------


def _damaged(data: bytes, at: float) -> bytes:
    """Noise in the last part."""
    start = int(len(data) * at)
    noise = np.random.default_rng(3).integers(0, 256, len(data) - start, np.uint8).tobytes()
    return data[:start] + noise


BROKEN = {
    "tiff, packed pixels damaged": (
        Encoding.TIFF,
        _damaged(tiff(SMALL, packed=True, rows=99), 0.2),
    ),
    "gif, cut": (Encoding.GIF, gif(SMALL)[:1500]),
    "gif, damaged": (Encoding.GIF, _damaged(gif(SMALL), 0.5)),
    "avif, damaged": (Encoding.AVIF, _damaged(avif(SMALL), 0.95)[:-1] + b"\0"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_costs_only_itself(subject: Subject, kind: str) -> None:
    encoding, data = BROKEN[kind]
    good = item(gif(SMALL), Encoding.GIF, WIDE)
    errors, rows = subject.decode([good, item(data, encoding, WIDE), good])
    error = errors[1]
    assert errors[0] is None
    assert errors[2] is None
    assert error is None or isinstance(error, PoisonError)
    if error is not None:
        assert (error.code, error.stage) == (Reason.DECODE_FAILED, "decode")
    subject.check(good, rows[0])
    subject.check(good, rows[2])
