"""The schemas in docs/ are those of the types, complete and free of our inner names."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from schemas.frame import FrameEnvelope, FrameJson, FrameKeys
from schemas.json_schema import FOLDER, documents, key_docs, main
from schemas.result import ResultMessage
from schemas.settings_keys import Settings


def test_the_files_are_current() -> None:
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == documents(), (
        "run python -m schemas.json_schema"
    )


def test_main_writes_every_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.json_schema.FOLDER", tmp_path / "schemas")
    main()
    assert {file.name for file in (tmp_path / "schemas").iterdir()} == documents().keys()


@pytest.mark.parametrize("name", documents())
def test_every_key_has_a_type_and_a_description(name: str) -> None:
    schema = json.loads(documents()[name])
    definitions = schema["$defs"]
    assert schema["$ref"].removeprefix("#/$defs/") in definitions
    keys = {
        f"{title}.{key}": value
        for title, definition in definitions.items()
        for key, value in definition.get("properties", {}).items()
    }
    assert keys
    untyped = [
        key for key, value in keys.items() if not value.keys() & {"type", "anyOf", "enum", "$ref"}
    ]
    assert untyped == (["FrameEnvelope.data"] if name == "frame.msgpack.json" else [])
    assert [key for key, value in keys.items() if not value["description"]] == []


def test_the_two_forms_differ_in_what_they_require() -> None:
    native = json.loads(documents()["frame.msgpack.json"])["$defs"]["FrameEnvelope"]
    text = json.loads(documents()["frame.json.json"])["$defs"]["FrameJson"]
    assert set(native["required"]) == {"stream_id", "seq", "captured_at_us", "encoding"}
    assert set(text["required"]) == {"encoding"}
    for form in (native, text):
        assert [each["required"] for each in form["oneOf"]] == [
            ["data"], ["uri", "sha256", "length"],
        ]  # fmt: skip
    assert "bin" in native["properties"]["data"]["description"]
    assert text["properties"]["data"]["anyOf"][0]["contentEncoding"] == "base64"


def test_secrets_are_marked() -> None:
    kafka = json.loads(documents()["settings.json"])["$defs"]["KafkaSettings"]
    assert {"type": "string", "writeOnly": True} in kafka["properties"]["sasl_password"]["anyOf"]


@pytest.mark.parametrize("struct", [FrameKeys, FrameEnvelope, FrameJson, ResultMessage, Settings])
def test_docstrings_name_every_key_and_no_other(struct: type[msgspec.Struct]) -> None:
    assert set(key_docs(struct)) == set(struct.__struct_fields__)
