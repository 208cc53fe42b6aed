"""What is peculiar to AVIF: items, turns, and sizes that must agree with the bitstream."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from PIL import Image

from pipeline.av1_sequence import MAX_FRAMES, MAX_OBUS, coded_size
from pipeline.avif_items import read_items
from pipeline.item import Header
from pipeline.probe_avif import read_avif
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding
from tests.builders_avif import box
from tests.builders_formats import avif, turned_avif
from tests.builders_pictures import picture, rgb_image, save, with_alpha

SMALL = picture(61, 41)
PLAIN = avif(SMALL)
ALPHA = save(with_alpha(rgb_image(SMALL)), "AVIF", speed=10)


def read(data: bytes, max_pixels: int = 50_000_000) -> Header:
    return read_avif(memoryview(data), max_pixels)


def refusal(data: bytes, max_pixels: int = 50_000_000) -> Reason:
    with pytest.raises(PoisonError) as caught:
        read(data, max_pixels)
    assert caught.value.stage == "probe"
    return caught.value.code


def patched(data: bytes, name: bytes, skip: int, new: bytes) -> bytes:
    """`new` in place of what stands `skip` bytes behind a box's name."""
    at = data.index(name) + 4 + skip
    return data[:at] + new + data[at + len(new) :]


def av1(data: bytes) -> bytes:
    number, items = read_items(memoryview(data))
    return bytes(items[number].data)


def test_items_are_found() -> None:
    number, items = read_items(memoryview(ALPHA))
    assert items[number].kind == b"av01"
    assert [item.kind for item in items.values()] == [b"av01", b"av01"]
    assert all(coded_size(item.data) == (61, 41) for item in items.values())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_and_mirrors(orientation: int) -> None:
    assert read(turned_avif(SMALL, orientation)) == Header(Encoding.AVIF, 61, 41, orientation)


def test_a_size_that_is_not_the_bitstreams() -> None:
    """libavif would decode what the bitstream claims, and scale it."""
    assert refusal(patched(PLAIN, b"ispe", 4, struct.pack(">LL", 10, 10))) is Reason.BAD_HEADER
    large = avif(picture(200, 100))
    lying = patched(large, b"ispe", 4, struct.pack(">LL", 20, 10))
    assert refusal(lying, max_pixels=1000) is Reason.BAD_HEADER


def test_animations_are_refused() -> None:
    other = rgb_image(SMALL).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    data = save(rgb_image(SMALL), "AVIF", save_all=True, append_images=[other], duration=40)
    assert refusal(data) is Reason.UNSUPPORTED_ENCODING


def test_other_kinds_of_pictures_are_refused_by_name() -> None:
    heic = PLAIN.replace(b"av01", b"hvc1")
    assert refusal(heic) is Reason.UNSUPPORTED_ENCODING


@pytest.mark.parametrize("name", [b"ispe", b"pitm", b"iloc", b"iinf"])
def test_what_must_be_said(name: bytes) -> None:
    assert refusal(PLAIN.replace(name, b"free")) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: patched(data, b"pitm", 4, b"\0\x09"),
        lambda data: patched(data, b"iloc", 4, b"\x37"),
        lambda data: patched(data, b"iinf", 4, b"\xff\xff"),
        lambda data: patched(data, b"ipma", 4, b"\0\0\xff\xff"),
        lambda data: patched(data, b"ipma", 11, b"\x7f"),
        lambda data: data.replace(b"colr", b"ispe"),
        lambda data: data.replace(b"hdlr", b"iloc"),
    ],
    ids=["item", "numbers", "items", "properties", "property", "two sizes", "two places"],
)
def test_descriptions_that_contradict_themselves(damage: Callable[[bytes], bytes]) -> None:
    assert refusal(damage(PLAIN)) is Reason.BAD_HEADER


def test_boxes_may_not_claim_more_than_there_is() -> None:
    assert refusal(patched(PLAIN, b"mdat", -8, b"\x7f")) is Reason.TRUNCATED_HEADER
    assert refusal(patched(PLAIN, b"pixi", -8, b"\0\0\0\7")) is Reason.BAD_HEADER
    assert refusal(PLAIN + b"\0\0\0\x08free" * 600) is Reason.BAD_HEADER


# --- the bitstream ------------------------------------------------------------------------------


def unit(kind: int, payload: bytes) -> bytes:
    return bytes([kind << 3 | 2, len(payload)]) + payload


def reduced(width: int, height: int) -> bytes:
    """A reduced sequence header: profile, two flags, level, then the sizes in 16 bits."""
    bits = "000" + "1" + "1" + "00000" + f"{15:04b}" * 2 + f"{width - 1:016b}{height - 1:016b}"
    bits += "0" * (-len(bits) % 8)
    return unit(1, int(bits, 2).to_bytes(len(bits) // 8, "big"))


def full(width: int, height: int) -> bytes:
    """With timing, decoder model, two operating points and display delays."""
    bits = "000" + "0" + "0" + "1" + f"{1:032b}{1:032b}" + "1" + "00101"  # uvlc: 4
    bits += "1" + "00111" + "0" * 32 + "00000" * 2 + "1" + "00001"
    bits += "0" * 12 + "01000" + "1" + "1" + "0" * 17 + "1" + "0000"
    bits += "0" * 12 + "00111" + "0" + "0"
    bits += f"{15:04b}" * 2 + f"{width - 1:016b}{height - 1:016b}"
    bits += "0" * (-len(bits) % 8)
    return unit(1, int(bits, 2).to_bytes(len(bits) // 8, "big"))


@pytest.mark.parametrize("header", [reduced, full])
def test_sequence_headers(header: Callable[[int, int], bytes]) -> None:
    stream = unit(2, b"") + header(1920, 1080) + unit(6, b"frame")
    assert coded_size(memoryview(stream)) == (1920, 1080)
    twice = stream + header(1920, 1080)
    assert coded_size(memoryview(twice)) == (1920, 1080)
    with pytest.raises(PoisonError, match="claims to be"):
        coded_size(memoryview(stream + header(65536, 65536)))


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"", Reason.BAD_HEADER),
        (unit(6, b"frame"), Reason.BAD_HEADER),
        (b"\x80" + reduced(9, 9), Reason.BAD_HEADER),
        (reduced(9, 9)[:-2], Reason.TRUNCATED_HEADER),
        (b"\x0a", Reason.TRUNCATED_HEADER),
        (b"\x0a" + b"\xff" * 9, Reason.BAD_HEADER),
        (unit(1, b"\0\0"), Reason.TRUNCATED_HEADER),
        (reduced(9, 9) + unit(6, b"") * (MAX_FRAMES + 1), Reason.BAD_HEADER),
        (reduced(9, 9) + unit(15, b"") * MAX_OBUS, Reason.BAD_HEADER),
    ],
    ids=["empty", "none", "bit", "cut", "no length", "endless", "short", "frames", "units"],
)
def test_bitstreams_that_contradict_the_format(stream: bytes, code: Reason) -> None:
    with pytest.raises(PoisonError) as caught:
        coded_size(memoryview(stream))
    assert caught.value.code is code


def test_a_unit_without_a_length_reaches_to_the_end() -> None:
    payload = reduced(33, 22)[2:]
    assert coded_size(memoryview(b"\x08" + payload)) == (33, 22)
    assert coded_size(memoryview(av1(PLAIN))) == (61, 41)


# --- grids --------------------------------------------------------------------------------------


def grid(
    columns: int,
    rows: int,
    *,
    tile_side: int = 64,
    size: tuple[int, int] | None = None,
    claims: tuple[int, int] | None = None,
) -> bytes:
    """A grid whose one square tile stands for all of them (`dimg` is not read). `size` is that of
    the item, `claims` that of the grid itself."""
    tile = reduced(tile_side, tile_side) + unit(6, b"frame")
    size = size or (tile_side * columns, tile_side * rows)
    payload = struct.pack(">BBBBHH", 0, 0, rows - 1, columns - 1, *(claims or size))
    infe = [
        box(b"infe", struct.pack(">LHH4sB", 2 << 24, number, 0, kind, 0))
        for number, kind in ((1, b"grid"), (2, b"av01"))
    ]
    sizes = [box(b"ispe", struct.pack(">LLL", 0, *each)) for each in (size, (tile_side,) * 2)]
    places = struct.pack(">LBBH", 1 << 24, 0x44, 0, 2)
    places += struct.pack(">HHHHLL", 1, 1, 0, 1, 0, 8)
    places += struct.pack(">HHHHLL", 2, 1, 0, 1, 8, len(tile))
    parts = [
        box(b"pitm", struct.pack(">LH", 0, 1)),
        box(b"iloc", places),
        box(b"iinf", struct.pack(">LH", 0, 2) + b"".join(infe)),
        box(
            b"iprp",
            box(b"ipco", b"".join(sizes))
            + box(b"ipma", struct.pack(">LLHBBHBB", 0, 2, 1, 1, 1, 2, 1, 2)),
        ),
        box(b"idat", payload + tile),
    ]
    return box(b"ftyp", b"avif\0\0\0\0avifmif1") + box(b"meta", bytes(4) + b"".join(parts))


def test_grids() -> None:
    assert read(grid(3, 2)) == Header(Encoding.AVIF, 192, 128)
    assert refusal(grid(3, 2, claims=(9000, 9000))) is Reason.BAD_HEADER
    assert refusal(grid(30, 20)) is Reason.BAD_HEADER
    assert refusal(grid(16, 16, tile_side=128, size=(64, 64))) is Reason.TOO_MANY_PIXELS
