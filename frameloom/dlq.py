"""`frameloom dlq`: dead letters, listed and looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pipeline.item import Coordinates
from schemas.codec import JSON_OBJECT, MAP_BYTES, RawRecord
from schemas.errors import ConfigError, FrameloomError
from schemas.magic import refused_format, sniff, sniff_segment

_HEX_ROW = 16


class PictureError(FrameloomError):
    """A record that holds no picture."""


class _Keyed(msgspec.Struct):
    """The one key of an envelope that matters here."""

    data: bytes


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter as people ask for it.

    Attributes:
        topic, partition, offset: where it lies in the dead-letter topic.
        source: `topic/partition/offset` of the record it was, or empty.
        reason, stage, detail, attempts, worker: the `fl-*` headers; empty where absent.
        at_us: when it was given up, Unix microseconds, or None.
        key: as text; `hex:…` where it is not UTF-8, empty without one.
        nbytes: of the value.
    """

    topic: str
    partition: int
    offset: int
    source: str
    reason: str
    stage: str
    detail: str
    attempts: str
    worker: str
    at_us: int | None
    key: str
    nbytes: int


def read_dead_letter(record: RawRecord) -> DeadLetter:
    """Whatever the record's headers say. Of a header that stands twice (a replayed dead letter)
    the last one counts."""
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    at = headers.get("fl-at", "")
    return DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        source=headers.get("fl-source", ""),
        reason=headers.get("fl-reason", ""),
        stage=headers.get("fl-stage", ""),
        detail=headers.get("fl-detail", ""),
        attempts=headers.get("fl-attempts", ""),
        worker=headers.get("fl-worker", ""),
        at_us=int(at) if _is_number(at) else None,
        key=key_text(record.key),
        nbytes=len(record.value or b""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which dead letters are meant. None admits all.

    Attributes:
        reason: code.
        stream: the record's key.
        since_us, until_us: given up at or after, and before; Unix microseconds. A letter that
            does not say when is not admitted by either.
        source: `topic/partition/offset` of the record it was.
    """

    reason: str | None = None
    stream: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    source: str | None = None

    def admits(self, letter: DeadLetter) -> bool:
        """Whether all that is asked for holds."""
        at_us = letter.at_us
        return (
            self.reason in (None, letter.reason)
            and self.stream in (None, letter.key)
            and self.source in (None, letter.source)
            and (self.since_us is None or (at_us is not None and at_us >= self.since_us))
            and (self.until_us is None or (at_us is not None and at_us < self.until_us))
        )


def picture_of(record: RawRecord) -> bytes:
    """The picture's or segment's bytes in a record, whatever its form; damaged ones as they are.

    Less is asked for than a worker asks: the record is a dead letter because of something.

    Raises:
        PictureError: the value holds no picture that could be told apart from the rest.
    """
    value = record.value or b""
    view = memoryview(value)
    if any(look(view) is not None for look in (sniff, sniff_segment, refused_format)):
        return value
    try:
        if value[:1] and value[0] in MAP_BYTES:
            return msgspec.msgpack.decode(value, type=_Keyed).data
        if JSON_OBJECT.match(value):
            return msgspec.json.decode(value, type=_Keyed).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PictureError(f"no picture can be read from this record: {error}") from error
    raise PictureError("this record is neither a picture nor an envelope around one")


def key_text(key: bytes | None) -> str:
    """A record's key for people, as the codec names streams."""
    if key is None:
        return ""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"hex:{key.hex()}"


def parse_coordinates(text: str) -> Coordinates:
    """`topic/partition/offset` → coordinates. Raises ConfigError where it is something else."""
    topic, _, rest = text.rpartition("/")
    topic, _, partition = topic.rpartition("/")
    if not (topic and _is_number(partition) and _is_number(rest)):
        raise ConfigError(f"{text!r} is not TOPIC/PARTITION/OFFSET, e.g. frames.dlq/0/12")
    return Coordinates(topic, int(partition), int(rest))


def source_of(headers: Iterable[tuple[str, bytes]]) -> Coordinates | None:
    """What the last `fl-source` names, or None where it is absent or unreadable."""
    last = None
    for name, value in headers:
        if name == "fl-source":
            last = value
    if last is None:
        return None
    try:
        return parse_coordinates(last.decode())
    except (UnicodeDecodeError, ConfigError):
        return None


def hexdump(data: bytes, limit: int) -> str:
    """The first `limit` bytes, 16 to a line: position, hexadecimal, printable characters."""
    lines: list[str] = []
    for start in range(0, min(len(data), limit), _HEX_ROW):
        row = data[start : min(start + _HEX_ROW, limit)]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{_HEX_ROW * 3 - 1}}  {text}")
    if len(data) > limit:
        lines.append(f"... {len(data) - limit} more bytes")
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    # `isdecimal` alone takes other scripts' digits, and `int` refuses thousands of digits.
    return text.isascii() and text.isdecimal() and len(text) <= 19
