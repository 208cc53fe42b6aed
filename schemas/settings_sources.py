"""Where settings come from: a YAML file, the environment, `--set`. Later ones win.

A draft holds plain values and remembers the source of each, so that a bad one can be traced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, cast

import msgspec
from msgspec.structs import FieldInfo

from schemas.errors import ConfigError
from schemas.settings_check import (
    element_of,
    fields_of,
    holds_secret,
    is_optional,
    is_secret,
    is_text,
    known_keys,
    nearest_key,
    section_of,
    unknown,
)
from schemas.settings_keys import Settings
from schemas.settings_yaml import Path, dotted, read_yaml

ENV_PREFIX = "FRAMELOOM__"
_ALMOST = "FRAMELOOM_"
SET_OPTION = "--set"
_NULLS = frozenset({"", "~", "null"})


@dataclass(slots=True)
class Draft:
    """Settings before they are checked: plain values, and where each was said."""

    content: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: dict[Path, str] = field(default_factory=dict[Path, str])

    def source(self, path: Path) -> str:
        """Who said this key, or the nearest key around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.sources:
                return self.sources[path[:length]]
        return "defaults"

    def record(self, path: Path, source: str) -> None:
        """Remember that `source` said this key and all below it."""
        for known in [known for known in self.sources if known[: len(path)] == path]:
            del self.sources[known]
        self.sources[path] = source


@dataclass(frozen=True, slots=True)
class Change:
    """One key said by the environment or the command line.

    Attributes:
        segments: the key's path; an element of a list by its index or its name.
        text: the value as written.
        source: the variable, or the option with its key. Never the value.
    """

    segments: tuple[str, ...]
    text: str
    source: str


def draft_of_file(path: str | FilePath) -> Draft:
    """The draft that a YAML file makes. Raises ConfigError if it cannot be read."""
    try:
        text = FilePath(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8") from None
    document = read_yaml(text, str(path))
    content = {} if document.content is None else document.content
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections (kafka, routes, …) at the top")
    # A section whose keys are all commented out is null.
    stated = {key: value for key, value in content.items() if value is not None}
    sources = {place: f"{path}:{line}" for place, line in document.lines.items()}
    return Draft(stated, sources)


def env_changes(env: Mapping[str, str]) -> Iterator[Change]:
    """`FRAMELOOM__SECTION__KEY` variables, whole sections before their keys.

    Raises:
        ConfigError: one with a single underscore behind FRAMELOOM that else reads like ours. Names
            without any `__` belong to others: Kubernetes makes FRAMELOOM_HTTP_PORT for a service.
    """
    for name in sorted(env):
        section, parts, rest = name.removeprefix(_ALMOST).partition("__")
        if name.startswith(_ALMOST) and parts and section[:1].isalnum():
            raise ConfigError(f"{name}: no setting, did you mean {ENV_PREFIX}{section}__{rest}?")
        if name.startswith(ENV_PREFIX):
            segments = name[len(ENV_PREFIX) :].lower().split("__")
            yield Change(tuple(segments), env[name], name)


def set_changes(overrides: Sequence[str]) -> Iterator[Change]:
    """`section.key=value` options, in the order given."""
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            # It may be a misspelt secret: nothing of it is shown.
            raise ConfigError(f"{SET_OPTION}: expected section.key=value, found no '='")
        yield Change(tuple(key.strip().split(".")), text, f"{SET_OPTION} {key.strip()}")


def apply(draft: Draft, change: Change) -> None:
    """Put one change into the draft.

    Raises:
        ConfigError: the key does not exist, or a secret stands on the command line, where every
            user of the machine can read it.
    """
    annotation: Any = Settings
    node: Any = draft.content
    path: Path = ()
    for segment in change.segments[:-1]:
        step = _step(annotation, node, segment, path, change)
        path, annotation = (*path, step.key), step.annotation
        node = _entered(node, step)
    step = _step(annotation, node, change.segments[-1], path, change)
    path, value = (*path, step.key), _value(step.annotation, change)
    if change.source.startswith(SET_OPTION) and holds_secret(step.annotation, value):
        raise ConfigError(
            f"{change.source}: arguments are seen by every user of the machine; give a secret in "
            f"{_variable(path)}, or in a file (kafka.sasl_password_file)"
        )
    node[step.key] = value
    draft.record(path, change.source)


@dataclass(frozen=True, slots=True)
class _Step:
    """One step down: the key or index, what it takes, and what it holds if nobody said."""

    key: str | int
    annotation: Any
    default: Any


def _step(annotation: Any, node: Any, segment: str, path: Path, change: Change) -> _Step:
    element = element_of(annotation)
    if element is not None and isinstance(node, list):
        return _Step(_index(cast("list[Any]", node), segment, path, change), element, {})
    info = _field(annotation, node, segment, path, change)
    return _Step(info.name, info.type, _default(info))


def _entered(node: Any, step: _Step) -> Any:
    if isinstance(node, dict) and cast("dict[Any, Any]", node).get(step.key) is None:
        node[step.key] = step.default
    return node[step.key]


def _field(annotation: Any, node: Any, segment: str, path: Path, change: Change) -> FieldInfo:
    section = section_of(annotation)
    if section is None or not isinstance(node, dict):
        raise ConfigError(f"{change.source}: {dotted(path)} has no key {segment!r}")
    known = fields_of(section)
    if segment not in known:
        nearest = _with_the_rest(nearest_key((*path, segment)), change.segments[len(path) + 1 :])
        problem = unknown(nearest, known)
        if nearest is not None and change.source.startswith(ENV_PREFIX):
            problem = f"unknown variable, did you mean {_variable(nearest)}?"
        raise ConfigError(f"{change.source}: {problem}")
    return known[segment]


def _with_the_rest(nearest: Path | None, rest: tuple[str, ...]) -> Path | None:
    """Where a section was misspelt: the key that was meant in it, if it has that."""
    if nearest is None:
        return None
    whole: Path = (*nearest, *rest)
    plain = tuple(0 if isinstance(part, int) or part.isdecimal() else part for part in whole)
    return whole if plain in known_keys() else nearest


def _variable(path: Path) -> str:
    return ENV_PREFIX + "__".join(str(part).upper() for part in path)


def _index(elements: list[Any], segment: str, path: Path, change: Change) -> int:
    """An element by its index, or by its name (as a variable spells it: `-` is `_`)."""
    if segment.isdecimal() and int(segment) < len(elements):
        return int(segment)
    names = [str(each.get("name", "")) if isinstance(each, dict) else "" for each in elements]
    for spelled in (names, [name.lower().replace("-", "_") for name in names]):
        if segment in spelled:
            return spelled.index(segment)
    raise ConfigError(
        f"{change.source}: {dotted(path)} has no element {segment!r}; it has, by index (or name): "
        + ", ".join(f"{index} ({name})" if name else str(index) for index, name in enumerate(names))
    )


def _default(info: FieldInfo) -> Any:
    if info.default_factory is not msgspec.NODEFAULT:
        return msgspec.to_builtins(info.default_factory())
    return {}


def _value(annotation: Any, change: Change) -> Any:
    """The value of a text. Keys that hold texts take it as it is: a password is no YAML."""
    if not is_text(annotation):
        return read_yaml(change.text, change.source).content
    nulls = {""} if is_secret(annotation) else _NULLS
    return None if is_optional(annotation) and change.text in nulls else change.text
