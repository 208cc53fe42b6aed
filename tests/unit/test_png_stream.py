"""A PNG that unpacks to more than its picture is known before a decoder sees it."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from msgspec.structs import replace

from pipeline import png_stream
from pipeline.item import Header, Item
from pipeline.png_stream import unpacks_too_far
from schemas.frame import Encoding
from tests.builders_pictures import (
    PICTURES,
    PNG_SIGNATURE,
    bucket,
    chunk,
    interlaced_png,
    item,
    jpeg,
    picture,
    png,
)

INTO = bucket(32, 32)
IHDR = png(picture(40, 30))[8:33]


def a_png(pixels: bytes, pieces: int = 1) -> Item:
    size = -(-len(pixels) // pieces)
    chunks = [chunk(b"IDAT", pixels[at : at + size]) for at in range(0, len(pixels), size)]
    data = PNG_SIGNATURE + IHDR + b"".join(chunks) + chunk(b"IEND", b"")
    return item(data, Encoding.PNG, INTO)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stream is unpacked, and none may hold more than a few bytes too many."""
    monkeypatch.setattr(png_stream, "SPARE_BYTES", 0)
    monkeypatch.setattr(png_stream, "_BEST_RATIO", 1 << 40)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_bomb_behind_the_pixels_is_known(pieces: int) -> None:
    bomb = zlib.compress(bytes(70 * 1024 * 1024), 9)
    assert unpacks_too_far(a_png(bomb, pieces))


def test_what_may_be_unpacked_is_let_pass() -> None:
    assert not unpacks_too_far(a_png(zlib.compress(bytes(60 * 1024 * 1024), 9)))


@pytest.mark.parametrize("kind", [kind for kind, (e, _) in PICTURES.items() if e is Encoding.PNG])
@pytest.mark.parametrize("size", [(1, 1), (37, 29), (300, 7)])
def test_no_real_picture_is_refused(strict: None, kind: str, size: tuple[int, int]) -> None:
    encoding, encode = PICTURES[kind]
    assert not unpacks_too_far(item(encode(picture(*size)), encoding, INTO))


def test_interlaced_pictures_have_more_rows(strict: None) -> None:
    for width, height in [(1, 1), (3, 50), (8, 8), (65, 33)]:
        assert not unpacks_too_far(item(interlaced_png(picture(width, height)), Encoding.PNG, INTO))


def test_a_damaged_stream_is_the_decoder_s_business(strict: None) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 5_000, np.uint8).tobytes()
    assert not unpacks_too_far(a_png(b"\x78\x9c" + noise))
    assert not unpacks_too_far(a_png(zlib.compress(noise)[:-100]))


def test_bytes_behind_the_stream_s_end_are_not_unpacked(strict: None) -> None:
    pixels = zlib.compress(bytes((1 + 40 * 3) * 30))
    assert not unpacks_too_far(a_png(pixels + zlib.compress(bytes(1_000_000))))


def test_other_formats_are_not_looked_at() -> None:
    assert not unpacks_too_far(item(jpeg(picture(9, 9)), Encoding.JPEG, INTO))
    renamed = replace(a_png(zlib.compress(b"")), header=Header(Encoding.WEBP, 40, 30))
    assert not unpacks_too_far(renamed)
