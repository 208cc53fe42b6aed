"""docs/dead-letters.md says what the code does: every reason, every header."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.dead_letter import dead_letter_headers, replay_headers
from schemas.errors import PoisonError, Reason
from schemas.record import RawRecord
from schemas.settings import LimitSettings

PAGE = Path(__file__).parents[2] / "docs" / "dead-letters.md"
RECORD = RawRecord("frames", 0, 1, b"cam", b"x", 0)


def table(head: str) -> dict[str, list[str]]:
    """Code of the first column → the other cells, of the first table after the text `head`."""
    text = PAGE.read_text().partition(head)[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    rows = [line.strip("|").split("|") for line in lines[0].splitlines()[2:]]
    return {row[0].strip(" `"): [cell.strip() for cell in row[1:]] for row in rows}


def test_every_reason_has_a_row_in_the_order_of_the_code() -> None:
    rows = table("## Reasons")

    assert list(rows) == [reason.value for reason in Reason]
    assert all(meaning and remedy for meaning, remedy in rows.values())


def test_every_header_has_a_row() -> None:
    poison = PoisonError(Reason.BAD_HEADER, "no", stage="probe")
    headers = dead_letter_headers(poison, RECORD, worker="w", at_us=1, attempts=1)

    assert list(table("## What stands on the topic")) == [name for name, _ in headers]
    assert list(table("## Replay")) == [name for name, _ in replay_headers(RECORD)]


def test_the_limits_named_are_those_of_the_settings() -> None:
    named = set(re.findall(r"`limits\.(\w+)`", PAGE.read_text()))
    assert named <= set(LimitSettings.__struct_fields__)
