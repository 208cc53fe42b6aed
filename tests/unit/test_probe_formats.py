"""BMP, TIFF, GIF and AVIF at the probe: right about every kind, and nothing but PoisonError on any
bytes. What is peculiar to each stands in its own test file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.item import Header
from pipeline.probe import ProbeLimits, probe
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_formats import FORMATS, avif, bmp_rle8, gif, gif_inside, tiff, turned_avif
from tests.builders_pictures import (
    LIMITS,
    Edits,
    damage,
    edits,
    frame,
    item_of,
    picture,
    rgb_image,
    save,
    with_alpha,
)
from tests.builders_pictures import bucket as a_bucket

SMALL = picture(61, 41)
SAMPLES = {
    "bmp": (Encoding.BMP, FORMATS["bmp-16-565"][1](SMALL)),
    "bmp-rle": (Encoding.BMP, bmp_rle8(SMALL)),
    "tiff": (Encoding.TIFF, tiff(SMALL, orientation=6)),
    "tiff-big-endian": (Encoding.TIFF, tiff(SMALL, order=">", tile=32, packed=True)),
    "tiff-jpeg": (Encoding.TIFF, FORMATS["tiff-jpeg"][1](SMALL)),
    "gif": (Encoding.GIF, gif(SMALL, transparency=3, comment=b"c" * 600)),
    "avif": (Encoding.AVIF, turned_avif(SMALL, 6)),
    "avif-alpha": (Encoding.AVIF, save(with_alpha(rgb_image(SMALL)), "AVIF", speed=10)),
}


def outcome(data: bytes, encoding: Encoding, limits: ProbeLimits = LIMITS) -> Header | PoisonError:
    """What the probe returns or refuses with; any other exception fails the test."""
    try:
        return probe(frame(data, encoding), limits)
    except PoisonError as error:
        return error


@pytest.mark.parametrize("kind", FORMATS)
def test_reads_every_kind(kind: str) -> None:
    encoding, encode = FORMATS[kind]
    found = outcome(encode(picture(61, 43)), encoding)
    assert isinstance(found, Header), found
    assert found.encoding is encoding
    if kind != "gif-inside":
        assert (found.width, found.height, found.orientation) == (61, 43, 1)


@pytest.mark.parametrize("name", SAMPLES)
def test_reads_a_view_into_a_larger_record(name: str) -> None:
    encoding, data = SAMPLES[name]
    record = b"BMII*\0GIF89a before " + data + b" behind"
    start = record.index(data)
    message = frame(b"", encoding)
    view = memoryview(record)[start : start + len(data)]
    inside = type(message)(stream_id="s", seq=0, captured_at_us=0, encoding=encoding, data=view)
    assert probe(inside, LIMITS) == outcome(data, encoding)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_is_truncated_or_whole(name: str) -> None:
    encoding, data = SAMPLES[name]
    whole = outcome(data, encoding)
    known = False
    # Every place in the head, some in the pixels.
    for end in [*range(min(len(data), 1500)), *range(1500, len(data), 17), len(data)]:
        found = outcome(data[:end], encoding)
        if isinstance(found, Header):
            known = True
            assert found == whole
        else:
            assert found.code is Reason.TRUNCATED_HEADER, (end, found)
            assert not known, "a longer piece must not know less"
    assert known


@pytest.mark.parametrize("name", SAMPLES)
def test_pixels_are_limited(name: str) -> None:
    encoding, data = SAMPLES[name]
    assert isinstance(outcome(data, encoding, ProbeLimits(61 * 41, 100)), Header)
    found = outcome(data, encoding, ProbeLimits(61 * 41 - 1, 100))
    assert isinstance(found, PoisonError)
    assert found.code is Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=150, deadline=None)
@given(
    edits=edits(700, 6),
    tail=st.binary(max_size=40),
)
def test_any_damage_is_refused_or_read(name: str, edits: Edits, tail: bytes) -> None:
    """In the head of real pictures."""
    encoding, data = SAMPLES[name]
    damaged = damage(data, edits, lambda _: b"\xff" * 4)
    found = outcome(damaged + tail, encoding)
    if isinstance(found, Header):
        assert 1 <= found.width * found.height <= LIMITS.max_pixels
        assert min(found.width, found.height) >= 1
        assert 1 <= found.orientation <= 8
    else:
        assert found.stage == "probe"


@settings(max_examples=200, deadline=None)
@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"BM", b"II*\0", b"MM\0*", b"GIF89a", b"\0\0\0\x1cftypavif", b""]),
    encoding=st.sampled_from(Encoding),
)
def test_any_bytes_are_refused_or_read(data: bytes, start: bytes, encoding: Encoding) -> None:
    found = outcome(start + data, encoding)
    assert isinstance(found, Header) or found.stage == "probe"


@pytest.mark.parametrize("said", [Encoding.BMP, Encoding.TIFF, Encoding.GIF, Encoding.AVIF])
@pytest.mark.parametrize("name", ["bmp", "tiff", "gif", "avif"])
def test_encoding_must_agree_with_the_bytes(said: Encoding, name: str) -> None:
    sent, data = SAMPLES[name]
    found = outcome(data, said)
    if said is sent:
        assert isinstance(found, Header)
    else:
        assert isinstance(found, PoisonError)
        assert found.code is Reason.ENCODING_MISMATCH
        assert sent.value in found.detail


def test_an_item_has_the_displayed_size() -> None:
    into = a_bucket(64, 96)
    for data, encoding in (
        (tiff(SMALL, orientation=6), Encoding.TIFF),
        (turned_avif(SMALL, 8), Encoding.AVIF),
    ):
        geometry = item_of(frame(data, encoding), into).geometry
        assert (geometry.source_width, geometry.source_height) == (41, 61)
    screen = item_of(frame(gif_inside(SMALL, 9), Encoding.GIF), into).geometry
    assert (screen.source_width, screen.source_height) == (61 + 27, 41 + 9)
    assert outcome(avif(SMALL), Encoding.AVIF) == Header(Encoding.AVIF, 61, 41)
