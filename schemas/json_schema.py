"""JSON Schemas of the wire format and the settings, from the types and their docstrings.

`python -m schemas.json_schema` writes them to docs/schemas/; a test checks they are current.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import msgspec

from schemas import frame, result, settings_kafka, settings_keys, settings_routes
from schemas.frame import FrameEnvelope, FrameJson
from schemas.result import ResultMessage
from schemas.settings_keys import Settings
from schemas.settings_types import Secret

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FILES: dict[str, type[msgspec.Struct]] = {
    "frame.msgpack.json": FrameEnvelope,
    "frame.json.json": FrameJson,
    "result.msgpack.json": ResultMessage,
    "settings.json": Settings,
}
_STRUCTS: dict[str, type[msgspec.Struct]] = {
    name: value
    for module in (frame, result, settings_kafka, settings_keys, settings_routes)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, msgspec.Struct)
}
_BIN = "MessagePack bin (not str): JSON Schema has no such type."


def summary(struct: type[msgspec.Struct]) -> str:
    """The first paragraph of a struct's docstring, on one line."""
    return " ".join((inspect.getdoc(struct) or "").partition("\n\n")[0].split())


def key_docs(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Key → its text in the `Attributes:` of the struct's docstring or those it inherits from."""
    docs: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base is not msgspec.Struct and issubclass(base, msgspec.Struct):
            docs.update(_attributes(inspect.getdoc(base) or ""))
    return docs


def documents() -> dict[str, str]:
    """File name → the text of every schema."""
    return {
        name: json.dumps(_schema(struct), indent=2, ensure_ascii=False) + "\n"
        for name, struct in _FILES.items()
    }


def _attributes(doc: str) -> dict[str, str]:
    docs: dict[str, str] = {}
    names: list[str] = []
    for line in doc.partition("Attributes:\n")[2].splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4:
            head, _, text = line.strip().partition(": ")
            names = head.split(", ")
            docs.update(dict.fromkeys(names, text))
        elif indent > 4:
            docs.update({name: f"{docs[name]} {line.strip()}" for name in names})
        elif line:
            break
    return docs


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(struct, schema_hook=_secret)
    for name, definition in schema["$defs"].items():
        if name in _STRUCTS:
            _describe(definition, _STRUCTS[name])
    if struct in (FrameEnvelope, FrameJson):
        _describe_data(schema["$defs"][struct.__name__], native=struct is FrameEnvelope)
    return {"$schema": _DIALECT, **schema}


def _describe_data(frame: dict[str, Any], *, native: bool) -> None:
    """What the types cannot say: a frame carries its bytes, or says where they are."""
    frame["oneOf"] = [
        {"required": ["data"], "properties": {"data": {"not": {"type": "null"}}}},
        {"required": ["uri", "sha256", "length"], "properties": {"uri": {"type": "string"}}},
    ]
    if native:
        data = frame["properties"]["data"]
        del data["anyOf"]
        data["description"] += f" {_BIN}"


def _describe(definition: dict[str, Any], struct: type[msgspec.Struct]) -> None:
    definition["description"] = summary(struct)
    docs = key_docs(struct)
    for key, schema in definition["properties"].items():
        schema["description"] = docs[key]
        if "$ref" in schema:
            # A section's default is its keys' defaults.
            schema.pop("default", None)


def _secret(kind: type) -> dict[str, Any]:
    if kind is Secret:
        return {"type": "string", "writeOnly": True}
    raise NotImplementedError(f"no schema for {kind.__name__}")


def main() -> None:
    """Write every schema."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
