"""The headers that say why a record became a dead letter. Key and value stay as they were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schemas.errors import PoisonError
from schemas.record import RawRecord

MAX_DETAIL_BYTES = 1024
"""Longest text of a header of ours, so that a dead letter fits its topic."""

HEADER_PREFIX = "fl-"
"""Names with this prefix are ours; producers must not use it."""

_ATTEMPTS_DIGITS = 6

NOTHING_MORE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class FrameMark:
    """Which part of a segment a dead letter stands for.

    Attributes:
        frame: the answered frame whose answer it is, counted from 0; None for what is left of the
            record, or for a record without frames.
        frames: how many answered frames the record has; None while that is not said.
    """

    frame: int | None = None
    frames: int | None = None

    def headers(self) -> dict[str, str]:
        """`fl-frame` and `fl-frames`, each where it says something."""
        marks = {"fl-frame": self.frame, "fl-frames": self.frames}
        return {name: str(number) for name, number in marks.items() if number is not None}


def frame_mark(headers: Iterable[tuple[str, bytes]]) -> FrameMark:
    """What a dead letter says of the frame it stands for; the last header of a name counts, and
    anything but 1 to 6 decimal digits for none."""
    found = {name: _number(value) for name, value in headers}
    return FrameMark(found.get("fl-frame"), found.get("fl-frames"))


def dead_letter_headers(
    error: PoisonError,
    record: RawRecord,
    *,
    worker: str,
    at_us: int,
    attempts: int,
    more: Mapping[str, str] = NOTHING_MORE,
) -> list[tuple[str, bytes]]:
    """The record's own headers, untouched and first, then ours.

    A record that was replayed and failed again carries two sets; the last of each name counts.

    Args:
        error: why the record failed; `fl-detail` is cut to 1 KiB between two characters.
        record: what failed; `fl-source` is its topic/partition/offset.
        worker: who gives up, `fl-worker`.
        at_us: when, Unix microseconds, `fl-at` in decimal.
        attempts: how often the record was tried, before it was replayed too, ≥ 1, `fl-attempts`
            in decimal.
        more: further headers of ours.
    """
    added = {
        "fl-reason": error.code.value,
        "fl-detail": error.detail,
        "fl-stage": error.stage,
        "fl-source": f"{record.topic}/{record.partition}/{record.offset}",
        "fl-attempts": str(attempts),
        "fl-worker": worker,
        "fl-at": str(at_us),
        **more,
    }
    return [*record.headers, *((name, _cut(text)) for name, text in added.items())]


def attempts_before(headers: Iterable[tuple[str, bytes]]) -> int:
    """How often a record was tried until now: its last `fl-attempts`.

    0 for a record that never failed. Producers are not trusted: a value that is not 1 to 6
    decimal digits counts as none.
    """
    last = b""
    for name, value in headers:
        if name == "fl-attempts":
            last = value
    return _number(last) or 0


def replay_headers(letter: RawRecord) -> list[tuple[str, bytes]]:
    """The headers with which a dead letter goes back to its topic.

    Those of the record it was, without any of ours, so that nobody takes it for a dead letter;
    then `fl-attempts`, how often it was tried so far, from which a worker that gives it up again
    counts on; and `fl-replayed-from`, the dead letter's topic/partition/offset.
    """
    kept = [header for header in letter.headers if not header[0].startswith(HEADER_PREFIX)]
    attempts = max(1, attempts_before(letter.headers))
    return [
        *kept,
        ("fl-attempts", str(attempts).encode()),
        ("fl-replayed-from", f"{letter.topic}/{letter.partition}/{letter.offset}".encode()),
    ]


def _number(value: bytes) -> int | None:
    # Of bytes, `isdigit` takes ASCII digits only.
    return int(value) if value.isdigit() and len(value) <= _ATTEMPTS_DIGITS else None


def _cut(text: str) -> bytes:
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= MAX_DETAIL_BYTES:
        return encoded
    return encoded[:MAX_DETAIL_BYTES].decode("utf-8", "ignore").encode()
