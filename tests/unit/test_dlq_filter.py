"""Dead letters as the command line sees them: headers, filters, coordinates, times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.dlq import DeadLetter, LetterFilter, parse_coordinates, read_dead_letter, source_of
from frameloom.instants import parse_instant
from pipeline.item import Coordinates
from schemas.dead_letter import attempts_before, dead_letter_headers, replay_headers
from schemas.errors import ConfigError, PoisonError, Reason
from schemas.record import RawRecord

Headers = tuple[tuple[str, bytes], ...]


def a_record(*headers: tuple[str, bytes], topic: str = "frames", offset: int = 4) -> RawRecord:
    return RawRecord(topic, 1, offset, b"cam", b"value", 0, headers)


def given_up(record: RawRecord, at: int) -> RawRecord:
    """The dead letter that a worker makes of it, at offset `at` of its topic."""
    headers = dead_letter_headers(
        PoisonError(Reason.DECODE_FAILED, "no", stage="decode"),
        record,
        worker="w",
        at_us=7,
        attempts=attempts_before(record.headers) + 1,
    )
    return RawRecord("frames.dlq", 0, at, record.key, record.value, 0, tuple(headers))


def replayed(letter: RawRecord, offset: int) -> RawRecord:
    return a_record(*replay_headers(letter), offset=offset)


def test_attempts_are_counted_across_replays() -> None:
    record = a_record(("traceparent", b"00-1"), ("site", b"north"))
    seen: list[str] = []
    for round_ in range(3):
        letter = given_up(record, round_)
        seen.append(read_dead_letter(letter).attempts)
        record = replayed(letter, 10 + round_)

    assert seen == ["1", "2", "3"]
    assert record.headers == (
        ("traceparent", b"00-1"),
        ("site", b"north"),
        ("fl-attempts", b"3"),
        ("fl-replayed-from", b"frames.dlq/0/2"),
    )


def test_a_replayed_letter_that_fails_again_names_its_new_place() -> None:
    again = given_up(replayed(given_up(a_record(), 0), 9), 1)

    assert source_of(again.headers) == Coordinates("frames", 1, 9)
    assert read_dead_letter(again).source == "frames/1/9"


@pytest.mark.parametrize(
    ("values", "attempts"),
    [
        ([], 0),
        ([b"3"], 3),
        ([b"3", b"4"], 4),
        ([b"4", b"junk"], 0),
        ([b""], 0),
        ([b"-1"], 0),
        ([b"1_0"], 0),
        ([b"9999999"], 0),
        (["٣".encode()], 0),
    ],
)
def test_attempts_that_producers_make_up_are_bounded(values: list[bytes], attempts: int) -> None:
    assert attempts_before([("fl-attempts", value) for value in values]) == attempts


@given(st.lists(st.tuples(st.text(max_size=12), st.binary(max_size=12)), max_size=6))
def test_any_headers_can_be_read_and_replayed(headers: list[tuple[str, bytes]]) -> None:
    letter = a_record(*headers)
    read_dead_letter(letter)
    source_of(letter.headers)

    back = replay_headers(letter)
    assert back[:-2] == [header for header in headers if not header[0].startswith("fl-")]
    assert attempts_before(back) >= 1


def a_letter(**changes: object) -> DeadLetter:
    fields: dict[str, object] = {
        "topic": "frames.dlq", "partition": 0, "offset": 3, "source": "frames/1/4",
        "reason": "decode_failed", "stage": "decode", "detail": "", "attempts": "1",
        "worker": "w", "at_us": 1_000, "key": "cam", "nbytes": 5,
    }  # fmt: skip
    return DeadLetter(**{**fields, **changes})


@pytest.mark.parametrize(
    ("wanted", "admitted"),
    [
        (LetterFilter(), True),
        (LetterFilter(reason="decode_failed", stream="cam", source="frames/1/4"), True),
        (LetterFilter(reason="bad_header"), False),
        (LetterFilter(stream="gate"), False),
        (LetterFilter(source="frames/1/5"), False),
        (LetterFilter(since_us=1_000), True),
        (LetterFilter(since_us=1_001), False),
        (LetterFilter(until_us=1_000), False),
        (LetterFilter(until_us=1_001), True),
    ],
)
def test_filters_admit_what_is_asked_for(wanted: LetterFilter, admitted: bool) -> None:
    assert wanted.admits(a_letter()) is admitted


def test_a_letter_without_a_time_is_outside_any_time() -> None:
    letter = a_letter(at_us=None)
    assert LetterFilter().admits(letter)
    assert not LetterFilter(since_us=0).admits(letter)
    assert not LetterFilter(until_us=2**62).admits(letter)


@pytest.mark.parametrize(
    "text", ["frames", "frames/0", "frames/0/x", "/0/1", "frames/٣/1", "frames/0/" + "9" * 5_000]
)
def test_coordinates_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_coordinates(text)
    assert source_of([("fl-source", text.encode())]) is None


def test_the_last_source_counts() -> None:
    headers: Headers = (("fl-source", b"a/0/1"), ("x", b""), ("fl-source", b"b/2/3"))
    assert source_of(headers) == Coordinates("b", 2, 3)
    assert source_of([("fl-source", b"\xff")]) is None


NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("90s", NOW_US - 90_000_000),
        ("15min", NOW_US - 900_000_000),
        ("2h", NOW_US - 7_200_000_000),
        ("7d", NOW_US - 604_800_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:01.5", 1_500_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
    ],
)
def test_times_are_ago_or_iso(text: str, us: int) -> None:
    assert parse_instant(text, NOW_US) == us


@pytest.mark.parametrize("text", ["", "soon", "5", "5m", "-1h", "2026-13-01", "12:00"])
def test_what_is_no_time_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ConfigError, match="is no time"):
        parse_instant(text, NOW_US)
