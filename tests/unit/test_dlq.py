"""Dead letters as people ask for them."""

from __future__ import annotations

import base64

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.dlq import (
    DeadLetter,
    LetterFilter,
    PictureError,
    hexdump,
    parse_coordinates,
    picture_of,
    read_dead_letter,
)
from pipeline.item import Coordinates
from schemas.codec import RawRecord, dead_letter_headers
from schemas.errors import ConfigError, PoisonError, Reason


def a_letter(
    reason: Reason = Reason.DECODE_FAILED, key: bytes | None = b"cam", value: bytes | None = b"xy"
) -> RawRecord:
    source = RawRecord("frames", 2, 17, key, value, 0, (("traceparent", b"00-1"),))
    error = PoisonError(reason, "every decoder refused it", stage="decode")
    headers = dead_letter_headers(error, source, worker="w1", at_us=99, attempts=3)
    return RawRecord("frames.dlq", 0, 4, key, value, 0, tuple(headers))


def test_the_headers_are_read() -> None:
    letter = read_dead_letter(a_letter())
    assert (letter.topic, letter.partition, letter.offset) == ("frames.dlq", 0, 4)
    assert (letter.source, letter.key, letter.nbytes) == ("frames/2/17", "cam", 2)
    assert (letter.reason, letter.stage, letter.attempts) == ("decode_failed", "decode", "3")
    assert (letter.worker, letter.at_us) == ("w1", 99)


def test_the_last_of_a_doubled_header_counts() -> None:
    record = a_letter()
    again = dead_letter_headers(
        PoisonError(Reason.INFERENCE_FAILED, "again", stage="infer"),
        record, worker="w2", at_us=100, attempts=1,
    )  # fmt: skip
    twice = RawRecord("frames.dlq", 0, 5, b"cam", b"xy", 0, tuple(again))
    assert read_dead_letter(twice).reason == "inference_failed"


def test_a_foreign_record_and_odd_keys_do_not_fail() -> None:
    bare = read_dead_letter(RawRecord("t", 0, 0, None, None, 0))
    assert (bare.reason, bare.source, bare.key, bare.nbytes, bare.at_us) == ("", "", "", 0, None)
    assert read_dead_letter(a_letter(key=b"\xff\x00")).key == "hex:ff00"


CUT_SHORT = b"\xff\xd8\xff\xe0 cut short"


@pytest.mark.parametrize(
    ("value", "picture"),
    [
        (CUT_SHORT, CUT_SHORT),
        (b"\x89PNG\r\n\x1a\nrest", b"\x89PNG\r\n\x1a\nrest"),
        (b"GIF89a", b"GIF89a"),
        (b"\x1aE\xdf\xa3 cut", b"\x1aE\xdf\xa3 cut"),
        (msgpack.packb({"v": 9, "encoding": "odd", "data": CUT_SHORT}), CUT_SHORT),
        (b' {"data": "' + base64.b64encode(CUT_SHORT) + b'"}', CUT_SHORT),
    ],
)
def test_the_picture_is_taken_out_of_whatever_form_it_has(value: bytes, picture: bytes) -> None:
    assert picture_of(a_letter(value=value)) == picture


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"no frame", b"\x81\xa1v\x01", b"\x81\xa4data\x05", b"{", b'{"data": "?"}',
        b'{"a":' * 5_000, b"\x81\xa1a" * 5_000,
    ],
)  # fmt: skip
def test_a_record_without_a_picture_says_so(value: bytes | None) -> None:
    with pytest.raises(PictureError, match="picture"):
        picture_of(a_letter(value=value))


def test_selection_by_reason_and_stream() -> None:
    letters = [
        read_dead_letter(a_letter()),
        read_dead_letter(a_letter(Reason.ZERO_SIZE)),
        read_dead_letter(a_letter(key=b"other")),
    ]

    def chosen(wanted: LetterFilter) -> list[DeadLetter]:
        return [letter for letter in letters if wanted.admits(letter)]

    assert chosen(LetterFilter()) == letters
    assert chosen(LetterFilter(reason="zero_size")) == letters[1:2]
    assert chosen(LetterFilter(reason="decode_failed", stream="other")) == letters[2:]


def test_coordinates_are_parsed_even_of_topics_with_slashes() -> None:
    assert parse_coordinates("frames.dlq/0/12") == Coordinates("frames.dlq", 0, 12)
    assert parse_coordinates("a/b/3/4") == Coordinates("a/b", 3, 4)


@pytest.mark.parametrize("text", ["", "frames", "frames/0", "frames/x/1", "/0/1", "f/0/-1", "f/0/"])
def test_what_is_no_coordinates_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="TOPIC/PARTITION/OFFSET"):
        parse_coordinates(text)


def test_hexdump_shows_position_bytes_and_text() -> None:
    dump = hexdump(b"\x00ABC\x7f" + b"z" * 20, 20)
    lines = dump.splitlines()
    assert lines[0].startswith("00000000  00 41 42 43 7f 7a")
    assert lines[0].endswith("  .ABC.zzzzzzzzzzz")
    assert lines[1].startswith("00000010  7a 7a 7a 7a ")
    assert lines[2] == "... 5 more bytes"


@given(st.binary(max_size=100), st.integers(0, 100))
def test_hexdump_holds_the_bytes(data: bytes, limit: int) -> None:
    rows = [line for line in hexdump(data, limit).splitlines() if not line.startswith("...")]
    assert bytes.fromhex("".join(row[10:57] for row in rows)) == data[:limit]
