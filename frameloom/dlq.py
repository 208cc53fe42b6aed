"""`frameloom dlq`: dead letters, listed and looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.item import Coordinates
from schemas.codec import RawRecord
from schemas.errors import ConfigError

_HEX_ROW = 16


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
        at_us=int(at) if at.isdecimal() else None,
        key=key_text(record.key),
        nbytes=len(record.value or b""),
    )


def select(
    letters: Iterable[DeadLetter], *, reason: str | None, stream: str | None
) -> list[DeadLetter]:
    """Those with this reason code and this key; None admits all."""
    return [
        letter
        for letter in letters
        if (reason is None or letter.reason == reason) and (stream is None or letter.key == stream)
    ]


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
