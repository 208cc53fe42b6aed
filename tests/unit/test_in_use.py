"""Nothing is offered that nothing uses: settings, reasons, metrics."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pipeline import metrics
from schemas.errors import Reason
from schemas.settings import RouteSettings, Settings
from schemas.settings_routes import BucketSettings

ROOT = Path(__file__).parents[2]
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for layer in ("schemas", "pipeline", "workers", "frameloom")
    for path in (ROOT / layer).rglob("*.py")
}
SECTIONS = [
    type(value)
    for value in msgspec.structs.asdict(Settings()).values()
    if isinstance(value, msgspec.Struct)
]
SETTINGS = [
    (section.__name__, field.name)
    for section in (*SECTIONS, RouteSettings, BucketSettings)
    for field in msgspec.structs.fields(section)
]


def uses(pattern: str, *, apart_from: tuple[str, ...]) -> list[str]:
    known = re.compile(pattern)
    return [
        name
        for name, text in SOURCES.items()
        if not name.startswith(apart_from) and known.search(text)
    ]


@pytest.mark.parametrize(("section", "key"), SETTINGS, ids="-".join)
def test_every_setting_is_read_somewhere(section: str, key: str) -> None:
    declared = ("schemas/settings_check", "schemas/settings_page", "schemas/settings_sources")
    assert uses(rf"\.{key}\b", apart_from=declared), f"{section}.{key} decides nothing"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_given_somewhere(reason: Reason) -> None:
    assert uses(rf"\bReason\.{reason.name}\b", apart_from=("schemas/errors",))


def test_every_metric_is_kept_by_somebody() -> None:
    names = {row: name for name, row in vars(metrics).items() if isinstance(row, metrics.Metric)}
    unused = [
        row.name
        for row in metrics.TABLE
        # Streams are counted in a table of their own, from which a scrape makes its series.
        if row not in metrics.STREAM_TABLE
        and not uses(rf"\b{names[row]}\b", apart_from=("pipeline/metrics.py",))
    ]
    assert unused == []
