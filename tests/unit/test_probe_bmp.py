"""What is peculiar to BMP headers."""

from __future__ import annotations

import struct

import pytest

from pipeline.item import Header
from pipeline.probe_bmp import read_bmp
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_formats import bmp, bmp_16, bmp_core, bmp_top_down
from tests.builders_pictures import picture

SMALL = picture(7, 5)
PLAIN = bytearray(bmp([bytes(21)] * 5, (7, 5), 24))


def read(data: bytes, max_pixels: int = 1000) -> Header:
    return read_bmp(memoryview(data), max_pixels)


def refusal(data: bytes) -> Reason:
    with pytest.raises(PoisonError) as caught:
        read(data)
    return caught.value.code


def patched(form: str, at: int, *values: int, data: bytes = PLAIN) -> bytes:
    copy = bytearray(data)
    struct.pack_into("<" + form, copy, at, *values)
    return bytes(copy)


def test_either_row_order_and_either_header() -> None:
    for data in (bytes(PLAIN), bmp_top_down(SMALL), bmp_core(SMALL)):
        assert read(data) == Header(Encoding.BMP, 7, 5)


@pytest.mark.parametrize("size", [(0, 5), (7, 0), (-7, 5)])
def test_an_empty_picture_has_its_size(size: tuple[int, int]) -> None:
    header = read(patched("ll", 18, *size))
    assert header.width < 1 or header.height < 1  # refused for that by the probe


def test_the_lowest_height_does_not_overflow() -> None:
    header = read(patched("ll", 18, 7, -(2**31)))
    assert (header.coded_width, header.coded_height) == (7, 2**31)


def test_uncompressed_rows_must_be_there_unless_the_size_is_refused_anyway() -> None:
    assert refusal(bytes(PLAIN[:-1])) is Reason.TRUNCATED_HEADER
    assert refusal(patched("l", 22, 6)) is Reason.TRUNCATED_HEADER
    assert refusal(patched("L", 10, 2**31)) is Reason.TRUNCATED_HEADER
    assert read(patched("ll", 18, 60_000, 60_000)).width == 60_000


@pytest.mark.parametrize(
    ("bits", "compression"),
    [(0, 0), (2, 0), (64, 0), (24, 1), (8, 2), (4, 1), (24, 3), (0, 4), (24, 5), (24, 2**31)],
)
def test_kinds_that_no_decoder_reads(bits: int, compression: int) -> None:
    assert refusal(patched("HL", 28, bits, compression)) is Reason.UNSUPPORTED_ENCODING


@pytest.mark.parametrize("length", [0, 13, 16, 39, 125, 2**31, 2**32 - 1])
def test_header_lengths(length: int) -> None:
    assert refusal(patched("L", 14, length)) is Reason.BAD_HEADER


def test_too_many_colours() -> None:
    indexed = bmp([bytes(8)] * 5, (7, 5), 8, colours=bytes(1024))
    assert read(indexed).width == 7
    assert refusal(patched("L", 46, 257, data=indexed)) is Reason.BAD_HEADER


def test_colour_masks_that_would_be_read_as_others() -> None:
    fine = bmp_16(SMALL, green_bits=6)
    assert read(fine).width == 7
    assert refusal(patched("LLL", 54, 1, 2, 4, data=fine)) is Reason.UNSUPPORTED_ENCODING
    assert refusal(fine[:60]) is Reason.TRUNCATED_HEADER
    inside = patched("L", 14, 56, data=fine)
    assert refusal(inside) is Reason.UNSUPPORTED_ENCODING
