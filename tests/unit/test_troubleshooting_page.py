"""docs/troubleshooting.md knows every reason, every way a batch closes, every exit code."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.errors import Reason
from schemas.result import ClosedBy
from workers import exits

TEXT = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()


def section(heading: str) -> str:
    return TEXT.partition(f"\n## {heading}")[2].partition("\n## ")[0]


def test_every_reason_is_somewhere() -> None:
    told = section("Dead letters of every reason")
    assert [reason.value for reason in Reason if f"`{reason.value}`" not in told] == []


def test_every_way_to_close_a_batch_is_explained() -> None:
    told = section("Is batching happening?")
    assert [closed.value for closed in ClosedBy if f"`{closed.value}`" not in told] == []


def test_every_exit_code_is_explained() -> None:
    codes = {value for name, value in vars(exits).items() if name.startswith("EXIT_")}
    rows = re.findall(r"^\| (\d+) \|", section("The worker ends with code N"), re.MULTILINE)
    assert codes <= {int(row) for row in rows}


def test_the_contents_lead_to_every_section() -> None:
    linked = set(re.findall(r"\]\(#([a-z0-9-]+)\)", TEXT))
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
    assert anchors == linked
