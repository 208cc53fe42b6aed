"""EXIF orientation: read as OpenCV reads it, applied as EXIF says."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.orientation import UPRIGHT, read_orientation, turn_of
from tests.builders_pictures import exif


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_reads_both_byte_orders(order: str, orientation: int) -> None:
    assert read_orientation(memoryview(exif(orientation, order))) == orientation


@pytest.mark.parametrize("orientation", [0, 9, 0x106, 0xFFFF])
def test_out_of_range_is_upright(orientation: int) -> None:
    assert read_orientation(memoryview(exif(orientation))) == UPRIGHT


def tiff(entries: list[tuple[int, int]], count: int | None = None, first: int = 8) -> memoryview:
    """Entries are (tag, value)."""
    block = b"II" + struct.pack("<HL", 42, first) + bytes(max(first - 8, 0))
    block += struct.pack("<H", len(entries) if count is None else count)
    block += b"".join(struct.pack("<HHLHH", tag, 3, 1, value, 0) for tag, value in entries)
    return memoryview(block)


def test_first_entry_counts_and_others_are_passed_over() -> None:
    assert read_orientation(tiff([(0x0100, 5), (0x0112, 6), (0x0112, 1)])) == 6
    assert read_orientation(tiff([(0x0112, 8)], first=20)) == 8
    assert read_orientation(tiff([(0x0100, 5)])) == UPRIGHT


def test_counts_and_offsets_that_lie() -> None:
    assert read_orientation(tiff([(0x0112, 6)], count=0xFFFF)) == 6
    assert read_orientation(tiff([(0x0100, 5)], count=0xFFFF)) == UPRIGHT
    assert read_orientation(memoryview(b"II*\0\xff\xff\xff\xff")) == UPRIGHT
    assert read_orientation(memoryview(b"II+\0" + exif(6)[4:])) == UPRIGHT


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_truncation(order: str) -> None:
    block = exif(6, order)
    for end in range(len(block)):
        assert read_orientation(memoryview(block)[:end]) in {UPRIGHT, 6}


@given(st.binary(max_size=80))
def test_any_bytes(block: bytes) -> None:
    assert 1 <= read_orientation(memoryview(block)) <= 8
    assert 1 <= read_orientation(memoryview(b"MM\0*\0\0\0\x08" + block)) <= 8


@pytest.mark.parametrize(
    ("orientation", "shown"),
    [
        (1, ["AB", "CD"]),
        (2, ["BA", "DC"]),
        (3, ["DC", "BA"]),
        (4, ["CD", "AB"]),
        (5, ["AC", "BD"]),
        (6, ["CA", "DB"]),
        (7, ["DB", "CA"]),
        (8, ["BD", "AC"]),
    ],
)
def test_turns_are_those_of_exif(orientation: int, shown: list[str]) -> None:
    """Where row 0 and column 0 of the stored picture go, by Exif's table."""
    turn = turn_of(orientation)
    rows = ["AB", "CD"]
    if turn.transpose:
        rows = ["".join(column) for column in zip(*rows, strict=True)]
    if turn.mirror_x:
        rows = [row[::-1] for row in rows]
    if turn.mirror_y:
        rows = rows[::-1]
    assert rows == shown


@pytest.mark.parametrize("orientation", [0, 9, -1])
def test_no_other_turn_exists(orientation: int) -> None:
    with pytest.raises(KeyError):
        turn_of(orientation)
