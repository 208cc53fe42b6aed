"""docs/wire-format.md has every key of the types, and the schemas beside it are linked."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from schemas.frame import Encoding, FrameEnvelope
from schemas.json_schema import FOLDER, documents
from schemas.result import BatchInfo, Detection, ModelInfo, ResultMessage, Source, Status, Times

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "wire-format.md").read_text()
CELLS = {
    name
    for row in re.findall(r"^\|(.*)\|$", TEXT, re.MULTILINE)
    for cell in row.split("|")[:2]
    for name in re.findall(r"`(\w+)`", cell)
}


@pytest.mark.parametrize(
    "struct",
    [FrameEnvelope, ResultMessage, Detection, ModelInfo, BatchInfo, Times, Source],
    ids=lambda struct: struct.__name__,
)
def test_every_key_stands_in_a_table(struct: type[msgspec.Struct]) -> None:
    assert [key for key in struct.__struct_encode_fields__ if key not in CELLS] == []


def test_every_encoding_and_status_is_named() -> None:
    named = set(re.findall(r"`([\w]+)`", TEXT))
    assert {member.value for member in (*Encoding, *Status)} <= named


def test_the_schemas_are_linked() -> None:
    assert "](schemas/)" in TEXT
    assert {file.name for file in FOLDER.iterdir()} == set(documents())
