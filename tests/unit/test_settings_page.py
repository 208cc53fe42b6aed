"""The tables of settings in the documents are those of the code and of configs/default.yaml."""

from __future__ import annotations

import pytest

from schemas import settings_page
from schemas.settings import load_settings
from schemas.settings_check import known_keys
from schemas.settings_page import BEGIN, END, MOST_USED, page, rows, short_table, with_table
from schemas.settings_yaml import dotted

CURRENT = "run: python -m schemas.settings_page"


def test_the_page_is_current() -> None:
    assert settings_page.PAGE.read_text() == page(), CURRENT


def test_the_readmes_table_is_current() -> None:
    text = settings_page.README.read_text()
    assert with_table(text) == text, CURRENT


def test_every_key_has_a_row_with_a_type_and_an_explanation() -> None:
    every = [*rows()]
    leaves = {
        key for key in known_keys() if not any(k[: len(key)] == key != k for k in known_keys())
    }
    assert {row.path for row in every} >= leaves
    assert [dotted(row.path) for row in every if not (row.kind and row.text)] == []


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("kafka.sasl_password", "secret, or null"),
        ("kafka.client_id", "text"),
        ("kafka.isolation_level", "`read_uncommitted` \\| `read_committed`"),
        ("routes.0.classes", "list of integer, at least 0, or null"),
        ("routes.0.segment_sample_fps", "number, above 0 to 1000, or null"),
        ("routes.0.buckets.0.max_batch", "integer, 1 to 1024, or `auto`"),
        ("routes.0.buckets.0.height", "integer, 32 to 8192 in steps of 32"),
        ("window.intervals", "number, 1 to 5"),
        ("window.idle_launch", "true or false"),
        ("flow.max_items", "integer, at least 1"),
    ],
)
def test_types_are_said_for_people(key: str, kind: str) -> None:
    assert {dotted(row.path): row.kind for row in rows()}[key] == kind


def test_the_variables_named_are_read() -> None:
    port = next(row for row in rows() if row.path == ("http", "port"))
    conf = next(row for row in rows() if row.path == ("routes", 0, "conf"))
    settings = load_settings(env={port.variable: "1", conf.variable: "0.5"})
    assert (settings.http.port, settings.routes[0].conf) == (1, 0.5)


def test_the_short_table_has_one_row_per_key() -> None:
    assert len(short_table().splitlines()) == 2 + len(MOST_USED)


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        with_table("# frameloom\n")
    assert with_table(f"a\n{BEGIN}\nold\n{END}\nb") == f"a\n{BEGIN}\n{short_table()}{END}\nb"
