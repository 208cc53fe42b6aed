"""The rows of the GPU check's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One line.

    Attributes:
        section, name: what was looked at.
        value: a figure, or words.
        unit: of the figure; empty for words.
        limit: what it must be, in words; empty where nothing is asked.
        passed: whether it is; None where nothing is asked, or could be.
    """

    section: str
    name: str
    value: float | str
    unit: str = ""
    limit: str = ""
    passed: bool | None = None

    @property
    def shown(self) -> str:
        if isinstance(self.value, str):
            return self.value
        if self.value == 0 or 0.001 <= abs(self.value) < 100:
            return f"{self.value:.4g}"
        return f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.1e}"


def at_most(section: str, name: str, value: float, limit: float, unit: str = "") -> Row:
    return Row(section, name, value, unit, f"≤ {limit:g}", value <= limit)


def at_least(section: str, name: str, value: float, limit: float, unit: str = "") -> Row:
    return Row(section, name, value, unit, f"≥ {limit:g}", value >= limit)


def holds(section: str, name: str, *, passed: bool, why: str = "") -> Row:
    return Row(
        section, name, "yes" if passed else f"no{': ' + why if why else ''}", "", "yes", passed
    )


def skipped(section: str, name: str, why: str) -> Row:
    return Row(section, name, f"not checked: {why}")


def table(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = ["| section | check | value | limit | |", "|---|---|---:|---|---|"]
    marks = {True: "ok", False: "FAILED", None: ""}
    lines += [
        f"| {row.section} | {row.name} | {row.shown} {row.unit}".rstrip()
        + f" | {row.limit} | {marks[row.passed]} |"
        for row in rows
    ]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
