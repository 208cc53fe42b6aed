"""YAML → plain maps, lists and scalars with the line of every key.

Stricter than YAML: keys are texts and stand once, values are plain (no dates, no tags, no merge
keys). Messages name the line and never quote the file, which may hold a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from schemas.errors import ConfigError

Path = tuple[str | int, ...]
"""A key's place, e.g. ("routes", 0, "conf")."""

_PLAIN = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
"""A quoted piece of a parser's message: a sign or a token of its own, or words of the text."""


@dataclass(slots=True)
class Document:
    """What a YAML text says. `lines` gives each key's line, counted from 1."""

    content: Any = None
    lines: dict[Path, int] = field(default_factory=dict[Path, int])


def dotted(path: Path) -> str:
    """The path as it is written after `--set`, e.g. `routes.0.conf`."""
    return ".".join(str(part) for part in path)


def read_yaml(text: str, source: str) -> Document:
    """Read one YAML document; an empty one has the content None.

    Raises:
        ConfigError: names `source` (a file's name, a variable) and the line.
    """
    document = Document()
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            document.content = _Walk(loader, document.lines, source).value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = source if mark is None else f"{source}:{mark.line + 1}"
        problem = _QUOTED.sub(_unquoted, error.problem or "cannot be read")
        raise ConfigError(f"{where}: not YAML: {problem}") from None
    except (yaml.YAMLError, ValueError):
        raise ConfigError(f"{source}: not YAML: a character or a number cannot be read") from None
    except RecursionError:
        raise ConfigError(f"{source}: not YAML: nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return document


def _unquoted(quoted: re.Match[str]) -> str:
    piece = quoted.group()[1:-1]
    own = piece.startswith("<") or not any(sign.isalnum() for sign in piece)
    return quoted.group() if own else "'…'"


class _Walk:
    """Builds the values of one document from its nodes."""

    def __init__(self, loader: yaml.SafeLoader, lines: dict[Path, int], source: str) -> None:
        self._loader = loader
        self._lines = lines
        self._source = source

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._map(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node, path)

    def _map(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                raise self._error(key_node, "merge keys (<<) are not read, anchors are")
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TEXT:
                raise self._error(key_node, f"a key under {dotted(path) or 'the top'} is no text")
            key = str(key_node.value)
            if key in content:
                raise self._error(key_node, f"{dotted((*path, key))} stands twice")
            self._lines[*path, key] = key_node.start_mark.line + 1
            content[key] = self.value(value_node, (*path, key))
        return content

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        implicit = self._loader.resolve(yaml.ScalarNode, node.value, (True, False))
        if node.tag not in _PLAIN or node.tag not in (_TEXT, implicit):
            raise self._error(node, f"{dotted(path)} is no plain value (put a text into quotes)")
        return self._loader.construct_object(node)

    def _error(self, node: yaml.Node, problem: str) -> ConfigError:
        return ConfigError(f"{self._source}:{node.start_mark.line + 1}: {problem}")
