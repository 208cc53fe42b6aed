"""The headers that say why a record became a dead letter. Key and value stay as they were."""

from __future__ import annotations

from schemas.errors import PoisonError
from schemas.record import RawRecord

MAX_DETAIL_BYTES = 1024
"""Longest text of a header of ours, so that a dead letter fits its topic."""


def dead_letter_headers(
    error: PoisonError, record: RawRecord, *, worker: str, at_us: int, attempts: int
) -> list[tuple[str, bytes]]:
    """The record's own headers, untouched and first, then ours.

    A record that was replayed and failed again carries two sets; the last of each name counts.

    Args:
        error: why the record failed; `fl-detail` is cut to 1 KiB between two characters.
        record: what failed; `fl-source` is its topic/partition/offset.
        worker: who gives up, `fl-worker`.
        at_us: when, Unix microseconds, `fl-at` in decimal.
        attempts: how often the record was tried, ≥ 1, `fl-attempts` in decimal.
    """
    added = {
        "fl-reason": error.code.value,
        "fl-detail": error.detail,
        "fl-stage": error.stage,
        "fl-source": f"{record.topic}/{record.partition}/{record.offset}",
        "fl-attempts": str(attempts),
        "fl-worker": worker,
        "fl-at": str(at_us),
    }
    return [*record.headers, *((name, _cut(text)) for name, text in added.items())]


def _cut(text: str) -> bytes:
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= MAX_DETAIL_BYTES:
        return encoded
    return encoded[:MAX_DETAIL_BYTES].decode("utf-8", "ignore").encode()
