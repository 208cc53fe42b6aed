"""Plain values against the types of the settings: unknown keys, wrong types, bad ranges."""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from schemas.settings_keys import Settings
from schemas.settings_types import Secret
from schemas.settings_yaml import Path, dotted

_SHOWN = 80
"""Most characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with the settings.

    Attributes:
        path: the key to change.
        problem: what is wrong, a phrase that follows the key and its value.
        value: the value as it may be shown; empty for secrets, maps and unknown keys.
        other: the key that it conflicts with, whose source is named, too; empty without.
    """

    path: Path
    problem: str
    value: str = ""
    other: Path = ()


def fields_of(struct: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """The keys of a section, in the order of its definition."""
    return {info.name: info for info in msgspec.structs.fields(struct)}


def section_of(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct behind a key that has keys of its own, else None."""
    plain = _plain(annotation)
    return plain if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def element_of(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct of a list's elements (routes, buckets), else None."""
    plain = _plain(annotation)
    return section_of(get_args(plain)[0]) if get_origin(plain) is list else None


def is_text(annotation: Any) -> bool:
    """True for keys whose value is a text: texts, secrets and enumerations."""
    plain = _plain(annotation)
    return get_origin(plain) is Literal or (isinstance(plain, type) and issubclass(plain, str))


def is_secret(annotation: Any) -> bool:
    """True for keys whose value may never be shown."""
    return _plain(annotation) is Secret


def holds_secret(annotation: Any, value: Any) -> bool:
    """True when a plain value for this key gives a secret, itself or somewhere inside."""
    if is_secret(annotation):
        return value not in (None, "")
    section = section_of(annotation)
    if section is None or not isinstance(value, dict):
        return False
    known = fields_of(section)
    return any(holds_secret(known[key].type, value[key]) for key in known if key in value)


def is_optional(annotation: Any) -> bool:
    """True for keys that may be null."""
    return type(None) in get_args(_unannotated(annotation))


def shown(value: object) -> str:
    """A scalar as it may stand in a message; empty for secrets, maps, lists and nulls."""
    if isinstance(value, (Secret, dict, list, types.NoneType)):
        return ""
    text = repr(str(value)) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def known_keys(struct: type[msgspec.Struct] = Settings, path: Path = ()) -> Iterator[Path]:
    """Every key's path, sections and their keys; lists stand with their element 0."""
    for name, info in fields_of(struct).items():
        here = (*path, name)
        yield here
        section, element = section_of(info.type), element_of(info.type)
        if section is not None:
            yield from known_keys(section, here)
        if element is not None:
            yield from known_keys(element, (*here, 0))


def nearest_key(path: Path) -> Path | None:
    """The known key that an unknown one was most likely meant to be, or None.

    First a key of the same name in another section, then the most similar of its neighbours,
    then the most similar of all.
    """
    known = list(known_keys())
    name = str(path[-1]).lower()
    shape = tuple(0 if isinstance(part, int) else part for part in path[:-1])
    namesakes = [key for key in known if key[-1] == name]
    if namesakes:
        return namesakes[0]
    for candidates in ([key for key in known if key[:-1] == shape], known):
        by_name = {str(key[-1]): key for key in reversed(candidates)}
        close = difflib.get_close_matches(name, by_name, n=1)
        if close:
            return by_name[close[0]]
    return None


def check(struct: type[msgspec.Struct], content: Any, path: Path = ()) -> Iterator[Violation]:
    """Everything in plain maps and lists that `struct` does not take, key by key."""
    if not isinstance(content, dict):
        yield Violation(path, "expected keys and values here")
        return
    known = fields_of(struct)
    for key in content:
        if key not in known:
            yield Violation((*path, key), unknown(nearest_key((*path, key)), known))
    for name, info in known.items():
        if name in content:
            yield from _check_value(info.type, content[name], (*path, name))
        elif info.required:
            yield Violation((*path, name), "is missing")


def unknown(nearest: Path | None, known: dict[str, FieldInfo]) -> str:
    """What to say of an unknown key."""
    if nearest is not None:
        return f"unknown key, did you mean {dotted(nearest)}?"
    return f"unknown key, known here: {', '.join(known)}"


def as_secret(kind: type, value: object) -> object:
    """msgspec's decoding hook: the one type of ours that it does not know."""
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def _check_value(annotation: Any, value: Any, path: Path) -> Iterator[Violation]:
    section, element = section_of(annotation), element_of(annotation)
    if section is not None:
        yield from check(section, value, path)
    elif element is not None:
        if not isinstance(value, list) or not value:
            yield Violation(path, "expected a list with at least one element")
            return
        for index, content in enumerate(value):
            yield from check(element, content, (*path, index))
    else:
        yield from _check_leaf(annotation, value, path)


def _check_leaf(annotation: Any, value: Any, path: Path) -> Iterator[Violation]:
    visible = "" if is_secret(annotation) else shown(value)
    if isinstance(value, float) and not math.isfinite(value):
        yield Violation(path, "expected a finite number", visible)
        return
    try:
        msgspec.convert(value, annotation, dec_hook=as_secret)
    except msgspec.ValidationError as error:
        yield Violation(path, _expected(annotation, value) or _lowered(str(error)), visible)


def _expected(annotation: Any, value: object) -> str:
    """What the key takes, where the type says it better than msgspec does; else empty."""
    choices = _choices(_plain(annotation))
    if choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint = f", did you mean {close[0]}?" if close else ""
        return f"expected {', '.join(choices)}{hint}"
    for part in _metas(annotation):
        if part.extra and "expected" in part.extra:
            return f"expected {part.extra['expected']}"
    return ""


def _choices(plain: Any) -> tuple[str, ...]:
    if get_origin(plain) is Literal:
        return get_args(plain)
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        return tuple(member.value for member in plain)
    return ()


def _metas(annotation: Any) -> Iterator[msgspec.Meta]:
    for part in get_args(annotation):
        if isinstance(part, msgspec.Meta):
            yield part
        elif get_origin(part) is Annotated:
            yield from _metas(part)


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def _unannotated(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _plain(annotation: Any) -> Any:
    """The type without its annotations and without `| None`."""
    bare = _unannotated(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        others = [part for part in get_args(bare) if part is not types.NoneType]
        return _plain(others[0]) if len(others) == 1 else bare
    return bare
