"""What every decoder owes the engine: the same pixels in the same place, and one broken picture
costs only itself. The suite runs on OpenCV, on the ladder DALI → OpenCV, and on both with tensors
on a GPU where there is one.

The reference is OpenCV's full decode followed by Ultralytics' LetterBox. The OpenCV decoder equals
it bit for bit; DALI's mean absolute difference is at most 2 grey levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from ultralytics.utils import ASSETS

from bench.scenes import Scene
from pipeline.bucket import Bucket
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.decoders import make_decoder
from pipeline.item import Header, Item
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_pictures import (
    PICTURES,
    Pixels,
    bucket,
    chunk,
    item,
    jpeg,
    oriented,
    picture,
    png,
    scan_start,
    webp,
)
from tests.contract.subject import UNTOUCHED, Subject, needs_dali

WIDE = bucket(256, 448)
BUCKETS = [WIDE, bucket(448, 256), bucket(384, 640), bucket(640, 384), bucket(32, 32)]


@cache
def photographs() -> dict[str, Pixels]:
    bus, zidane = (cv2.imread(str(ASSETS / name)) for name in ("bus.jpg", "zidane.jpg"))
    scene, _ = Scene(5, 853, 479).frame(1.0)
    return {"bus": bus, "zidane": zidane, "odd": bus[:1001, :777], "scene": scene}


# --- pictures of every kind, size and turn ------------------------------------------------------


@pytest.mark.parametrize("kind", PICTURES)
def test_every_kind(subject: Subject, kind: str) -> None:
    encoding, encode = PICTURES[kind]
    work = item(encode(picture(611, 413)), encoding, WIDE)
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0])


@pytest.mark.parametrize("encoding", [Encoding.JPEG, Encoding.PNG, Encoding.WEBP])
def test_every_orientation(subject: Subject, encoding: Encoding) -> None:
    pixels = picture(301, 199)
    works = [item(oriented(pixels, encoding, o), encoding, WIDE) for o in range(10)]
    errors, rows = subject.decode(works)
    assert errors == [None] * len(works)
    for orientation, (work, row) in enumerate(zip(works, rows, strict=True)):
        subject.check(work, row, orientation)


@pytest.mark.parametrize("into", BUCKETS, ids=lambda b: b.name)
@pytest.mark.parametrize("name", ["bus", "zidane", "odd", "scene"])
def test_photographs_and_scenes_in_every_bucket(subject: Subject, name: str, into: Bucket) -> None:
    work = item(jpeg(photographs()[name]), Encoding.JPEG, into)
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0])


@pytest.mark.parametrize(
    ("width", "height"),
    [
        (1, 1),
        (1, 4000),
        (4000, 1),
        (2, 3),
        (3, 4001),
        (37, 101),
        (448, 256),
        (449, 257),
        (895, 511),
    ],
)
def test_extreme_sizes(subject: Subject, width: int, height: int) -> None:
    work = item(jpeg(picture(width, height)), Encoding.JPEG, WIDE)
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0])


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(width=st.integers(1, 700), height=st.integers(1, 700), which=st.integers(0, 4))
def test_any_size(subject: Subject, width: int, height: int, which: int) -> None:
    """Even sides are made odd: those are the ones that go wrong by a pixel."""
    work = item(jpeg(picture(width | 1, height | 1)), Encoding.JPEG, BUCKETS[which])
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0], (width | 1, height | 1, BUCKETS[which].name))


# --- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 15, 16])
def test_mixed_batches_of_any_size(subject: Subject, size: int) -> None:
    kinds = list(PICTURES.values())
    works = []
    for index in range(size):
        encoding, encode = kinds[index * 5 % len(kinds)]
        works.append(item(encode(picture(101 + 30 * index, 77 + 10 * index)), encoding, WIDE))
    errors, rows = subject.decode(works, spare=2)
    assert errors == [None] * size
    for work, row in zip(works, rows[:size], strict=True):
        subject.check(work, row)
    assert (rows[size:] == UNTOUCHED).all()


def test_bytes_are_read_where_they_lie(subject: Subject) -> None:
    """The item's view lies inside a record, between other bytes."""
    data = jpeg(picture(99, 77))
    record = b"\xff\xd9before" + data + b"behind\xff\xd8"
    view = memoryview(record)[8 : 8 + len(data)]
    whole = item(data, Encoding.JPEG, WIDE)
    frame = type(whole.frame)(
        stream_id="s", seq=0, captured_at_us=0, encoding=Encoding.JPEG, data=view
    )
    errors, rows = subject.decode([replace(whole, frame=frame)])
    assert errors == [None]
    subject.check(whole, rows[0])


def test_buckets_take_turns(subject: Subject) -> None:
    for into in [*BUCKETS, *BUCKETS]:
        work = item(jpeg(picture(203, 151)), Encoding.JPEG, into)
        errors, rows = subject.decode([work])
        assert errors == [None]
        subject.check(work, rows[0])


# --- broken pictures ----------------------------------------------------------------------------


def _half(data: bytes) -> bytes:
    start = scan_start(data)
    return data[: (start + len(data)) // 2]


SMALL = picture(97, 65)
SMALL_PNG = png(SMALL)
HEADER = Header(Encoding.JPEG, 97, 65)
BROKEN: dict[str, tuple[bytes, Header]] = {
    "empty": (b"", HEADER),
    "cut in half": (_half(jpeg(SMALL)), HEADER),
    "cut in half, progressive": (_half(jpeg(SMALL, progressive=True)), HEADER),
    "header only": (jpeg(SMALL)[: scan_start(jpeg(SMALL)) - 14], HEADER),
    "ends at its scan": (jpeg(SMALL)[: scan_start(jpeg(SMALL))], HEADER),
    "no tables": (jpeg(SMALL)[:2] + jpeg(SMALL)[jpeg(SMALL).index(b"\xff\xc0") :], HEADER),
    "no picture": (b"\xff\xd8\xff\xd9", HEADER),
    "png, damaged pixels": (
        SMALL_PNG[:33] + chunk(b"IDAT", b"no zlib stream") + chunk(b"IEND", b""),
        replace(HEADER, encoding=Encoding.PNG),
    ),
    "png, cut": (SMALL_PNG[: len(SMALL_PNG) // 2], replace(HEADER, encoding=Encoding.PNG)),
    "webp, cut": (webp(SMALL)[:200], replace(HEADER, encoding=Encoding.WEBP)),
    "wider than its header": (jpeg(picture(98, 65)), HEADER),
    "turned": (jpeg(picture(65, 97)), HEADER),
    "another format": (b"GIF89a" + bytes(100), HEADER),
}


def broken(kind: str) -> Item:
    data, header = BROKEN[kind]
    return item(data, header.encoding, WIDE, header)


def refused_at(errors: Sequence[PoisonError | None]) -> list[int]:
    return [row for row, error in enumerate(errors) if error is not None]


@pytest.fixture(scope="module")
def good() -> Item:
    return item(jpeg(SMALL), Encoding.JPEG, WIDE)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_is_refused_and_the_decoder_works_on(
    subject: Subject, good: Item, kind: str
) -> None:
    errors, rows = subject.decode([good, broken(kind), good])
    assert refused_at(errors) == [1]
    error = errors[1]
    assert isinstance(error, PoisonError)
    assert (error.code, error.stage) == (Reason.DECODE_FAILED, "decode")
    assert error.detail
    subject.check(good, rows[0])
    subject.check(good, rows[2])
    errors, rows = subject.decode([good])
    assert errors == [None]
    subject.check(good, rows[0])


@pytest.mark.parametrize("kind", ["cut in half", "png, damaged pixels", "wider than its header"])
def test_a_broken_picture_of_sixteen_costs_only_itself(
    subject: Subject, good: Item, kind: str
) -> None:
    for position in range(16):
        works = [good] * 16
        works[position] = broken(kind)
        errors, rows = subject.decode(works)
        assert refused_at(errors) == [position]
        for row in {0, 15, (position + 1) % 16, (position - 1) % 16} - {position}:
            subject.check(good, rows[row], position)


def test_only_broken_pictures(subject: Subject, good: Item) -> None:
    works = [broken(kind) for kind in BROKEN]
    errors, _ = subject.decode(works)
    assert refused_at(errors) == list(range(len(works)))
    errors, rows = subject.decode([good])
    assert errors == [None]
    subject.check(good, rows[0])


def test_an_empty_or_random_scan_is_a_picture_to_every_decoder(
    subject: Subject, good: Item
) -> None:
    """No JPEG decoder can tell: these are answered, not dead-lettered, and harm nobody."""
    data = jpeg(SMALL)
    start = scan_start(data)
    noise = np.random.default_rng(3).integers(0, 255, 300, np.uint8).tobytes()
    works = [item(data[:start] + body + b"\xff\xd9", Encoding.JPEG, WIDE) for body in (b"", noise)]
    errors, rows = subject.decode([good, *works, good])
    assert errors == [None] * 4
    for work, row in zip([good, *works, good], rows, strict=True):
        subject.check(work, row)


# --- life cycle ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["opencv", pytest.param("dali", marks=needs_dali)])
def test_close_twice(kind: str) -> None:
    decoder = make_decoder(kind, threads=2, device="cpu")
    decoder.close()
    decoder.close()


def test_threads_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="≥ 1"):
        OpenCvDecoder(threads=0)
