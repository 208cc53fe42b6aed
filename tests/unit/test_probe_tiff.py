"""What is peculiar to TIFF headers: directories, strips and tiles, and what they claim."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from pipeline.item import Header
from pipeline.probe_tiff import MAX_PIECES, read_tiff
from pipeline.tiff_directory import MAX_ENTRIES, MAX_PAGES, TiffDirectory
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_formats import LONG, SHORT, tiff, tiff_file, tiff_pages
from tests.builders_pictures import jpeg, picture, rgb_image, save

SMALL = picture(61, 41)
Entries = dict[int, tuple[int, Sequence[int]]]
GREY: Entries = {
    256: (SHORT, [10]), 257: (SHORT, [10]), 258: (SHORT, [8]), 259: (SHORT, [1]),
    262: (SHORT, [1]), 273: (LONG, [0]), 277: (SHORT, [1]), 278: (SHORT, [10]), 279: (LONG, [100]),
}  # fmt: skip


def made(
    order: str = "<", body: bytes = bytes(100), **changes: tuple[int, Sequence[int]] | None
) -> bytes:
    """The grey picture with tags changed (`t259=(SHORT, [7])`) or left out (None)."""
    entries = dict(GREY)
    for name, entry in changes.items():
        entries.pop(int(name[1:]), None)
        if entry is not None:
            entries[int(name[1:])] = entry
    return tiff_file(entries, body, order)


def read(data: bytes, max_pixels: int = 50_000_000) -> Header:
    return read_tiff(memoryview(data), 20, max_pixels)


def refusal(data: bytes, max_pixels: int = 50_000_000) -> Reason:
    with pytest.raises(PoisonError) as caught:
        read(data, max_pixels)
    assert caught.value.stage == "probe"
    return caught.value.code


@pytest.mark.parametrize("order", "<>")
def test_either_byte_order(order: str) -> None:
    assert read(made(order)) == Header(Encoding.TIFF, 10, 10)
    assert read(made(order, t274=(SHORT, [6]))).orientation == 6


@pytest.mark.parametrize("turn", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_upright(turn: int) -> None:
    assert read(made(t274=(SHORT, [turn]))).orientation == 1


def test_bigtiff_is_refused_by_name() -> None:
    data = b"II" + struct.pack("<HHHQ", 43, 8, 0, 16) + bytes(100)
    assert refusal(data) is Reason.UNSUPPORTED_ENCODING


def test_the_first_page_counts_and_pages_are_bounded() -> None:
    assert read(tiff_pages(SMALL, 3)).width == 61
    image = rgb_image(picture(2, 2))
    many = save(image, "TIFF", save_all=True, append_images=[image] * MAX_PAGES)
    assert refusal(many) is Reason.UNSUPPORTED_ENCODING


def test_a_chain_of_pages_that_is_a_ring() -> None:
    data = bytearray(made())
    struct.pack_into("<L", data, 8 + 2 + 12 * len(GREY), 8)
    assert refusal(bytes(data)) is Reason.UNSUPPORTED_ENCODING


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"t256": None}, Reason.BAD_HEADER),
        ({"t262": None}, Reason.BAD_HEADER),
        ({"t273": None}, Reason.BAD_HEADER),
        ({"t279": None}, Reason.BAD_HEADER),
        ({"t256": (2, [10])}, Reason.BAD_HEADER),
        ({"t278": (SHORT, [0])}, Reason.BAD_HEADER),
        ({"t273": (LONG, [0, 0])}, Reason.BAD_HEADER),
        ({"t279": (LONG, [2**31])}, Reason.TRUNCATED_HEADER),
        ({"t278": (SHORT, [5]), "t273": (LONG, [0] * 2), "t279": (LONG, [100] * 2)}, None),
        ({"t259": (SHORT, [50000])}, Reason.UNSUPPORTED_ENCODING),
        ({"t259": (SHORT, [6])}, Reason.UNSUPPORTED_ENCODING),
        ({"t259": (SHORT, [4])}, Reason.UNSUPPORTED_ENCODING),
        ({"t262": (SHORT, [4])}, Reason.UNSUPPORTED_ENCODING),
        ({"t262": (SHORT, [32845])}, Reason.UNSUPPORTED_ENCODING),
        ({"t258": (SHORT, [32])}, Reason.UNSUPPORTED_ENCODING),
        ({"t258": (SHORT, [12])}, Reason.UNSUPPORTED_ENCODING),
        ({"t258": (SHORT, [8, 16])}, Reason.UNSUPPORTED_ENCODING),
        ({"t277": (SHORT, [5])}, Reason.UNSUPPORTED_ENCODING),
        ({"t339": (SHORT, [3])}, Reason.UNSUPPORTED_ENCODING),
        ({"t32997": (LONG, [1000])}, Reason.UNSUPPORTED_ENCODING),
        ({"t324": (LONG, [0])}, Reason.BAD_HEADER),
        ({"t322": (SHORT, [16]), "t323": (SHORT, [16])}, Reason.BAD_HEADER),
    ],
)
def test_what_a_page_may_say(
    changes: dict[str, tuple[int, Sequence[int]] | None], code: Reason | None
) -> None:
    if code is None:
        assert read(made(**changes)).width == 10
    else:
        assert refusal(made(**changes)) is code


def tiled(side: int, picture_side: int = 10) -> bytes:
    return made(
        t256=(SHORT, [picture_side]), t257=(SHORT, [picture_side]), t273=None, t278=None, t279=None,
        t322=(SHORT, [side]), t323=(SHORT, [side]), t324=(LONG, [0]), t325=(LONG, [100]),
    )  # fmt: skip


def test_what_strips_and_tiles_may_claim() -> None:
    assert read(made(t278=(LONG, [2**32 - 1]))).width == 10
    assert read(made(t278=(LONG, [64]))).width == 10
    assert refusal(made(t278=(LONG, [2**24]))) is Reason.TOO_MANY_PIXELS
    assert read(tiled(256)).width == 10
    assert refusal(tiled(2048)) is Reason.TOO_MANY_PIXELS
    assert refusal(tiled(256), max_pixels=1000) is Reason.TOO_MANY_PIXELS
    assert refusal(tiled(0)) is Reason.BAD_HEADER


def test_pieces_that_lie_over_each_other() -> None:
    each = {"t278": (SHORT, [1]), "t273": (LONG, [0] * 10)}
    assert read(made(t279=(LONG, [10] * 10), **each)).width == 10
    assert refusal(made(t279=(LONG, [100] * 10), **each)) is Reason.BAD_HEADER


def test_too_many_pieces() -> None:
    rows = MAX_PIECES + 1
    data = made(
        body=bytes(rows), t256=(SHORT, [1]), t257=(SHORT, [rows]), t278=(SHORT, [1]),
        t273=(LONG, list(range(rows))), t279=(LONG, [1] * rows),
    )  # fmt: skip
    assert refusal(data) is Reason.BAD_HEADER


def test_values_that_lie_over_each_other() -> None:
    """A reader copies them: a thousand tags may name the same megabytes."""
    entries = dict(sorted(GREY.items()))
    directory = struct.pack("<H", len(entries) + 3)
    for tag, (kind, values) in entries.items():
        packed = struct.pack("<H" if kind == SHORT else "<L", *values).ljust(4, b"\0")
        directory += struct.pack("<HHL", tag, kind, 1) + packed
    for tag in (60001, 60002, 60003):
        directory += struct.pack("<HHLL", tag, 1, 50_000, 200)
    data = b"II*\0" + struct.pack("<L", 8) + directory + bytes(50_300)
    assert refusal(data) is Reason.BAD_HEADER


def test_a_tag_that_stands_twice() -> None:
    data = bytearray(made(t60000=(SHORT, [1]), t60001=(SHORT, [1])))
    at = data.index(struct.pack("<H", 60001))
    struct.pack_into("<H", data, at, 60000)
    assert refusal(bytes(data)) is Reason.BAD_HEADER


def test_directories_that_claim_too_much() -> None:
    data = b"II*\0" + struct.pack("<LH", 8, MAX_ENTRIES + 1) + bytes(100_000)
    assert refusal(data) is Reason.BAD_HEADER
    assert refusal(b"II*\0" + struct.pack("<LH", 8, 100) + bytes(100)) is Reason.TRUNCATED_HEADER
    assert refusal(b"II*\0" + struct.pack("<L", 4) + bytes(100)) is Reason.BAD_HEADER
    assert refusal(b"II*\0" + struct.pack("<L", 2**32 - 1) + bytes(9)) is Reason.TRUNCATED_HEADER


def in_jpeg(piece: bytes, width: int = 10) -> bytes:
    return made(body=piece, t256=(SHORT, [width]), t259=(SHORT, [7]), t279=(LONG, [len(piece)]))


def test_jpegs_in_a_tiff_have_a_size_and_scans_of_their_own() -> None:
    grey = save(rgb_image(picture(10, 10)).convert("L"), "JPEG")
    assert read(in_jpeg(grey)).width == 10
    assert refusal(in_jpeg(grey, width=9)) is Reason.BAD_HEADER
    assert refusal(in_jpeg(b"no picture" * 9)) is Reason.BAD_HEADER
    scans = jpeg(picture(10, 10), progressive=True)
    with pytest.raises(PoisonError, match="scans"):
        read_tiff(memoryview(in_jpeg(scans)), 2, 50_000_000)


def test_a_turned_file_is_put_upright_in_a_copy() -> None:
    for order in "<>":
        plain, turned = (tiff(SMALL, order=order, orientation=turn) for turn in (1, 6))
        view = memoryview(plain)
        assert TiffDirectory(view).upright() is view
        assert TiffDirectory(memoryview(turned)).upright() == plain
    untagged = memoryview(tiff(SMALL))
    assert TiffDirectory(untagged).upright() is untagged
