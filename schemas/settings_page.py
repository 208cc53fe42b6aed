"""The tables of settings in the documents: keys and types from the code, words from
`configs/default.yaml`.

`python -m schemas.settings_page` writes docs/configuration.md and the table in README.md; a test
checks that both are current.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from schemas.settings_check import element_of, fields_of, is_secret, section_of
from schemas.settings_keys import Settings
from schemas.settings_routes import BucketSettings
from schemas.settings_sources import ENV_PREFIX
from schemas.settings_types import Secret
from schemas.settings_yaml import Path, dotted, read_yaml

ROOT = FilePath(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
README = ROOT / "README.md"
BEGIN = "<!-- settings: written by python -m schemas.settings_page -->"
END = "<!-- settings: end -->"

MOST_USED: tuple[Path, ...] = (
    ("kafka", "bootstrap_servers"),
    ("kafka", "group_id"),
    ("routes", 0, "input"),
    ("routes", 0, "output"),
    ("routes", 0, "model"),
    ("routes", 0, "conf"),
    ("routes", 0, "classes"),
    ("routes", 0, "sample_every"),
    ("window", "intervals"),
    ("window", "max_wait_ms"),
    ("limits", "max_record_bytes"),
    ("limits", "max_pixels"),
    ("flow", "max_items"),
    ("delivery", "guarantee"),
    ("device", "name"),
    ("device", "decoder"),
    ("http", "port"),
)
"""The keys of the README's table."""

_DEFAULTS = "configs/default.yaml"
_HEAD = f"""\
# Configuration

Every setting. Made by `python -m schemas.settings_page` from the code and `{_DEFAULTS}`; do not
edit by hand. `{_DEFAULTS}` says the same as a file to copy from,
[`schemas/settings.json`](schemas/settings.json) as a JSON Schema.

A value comes from, in rising order: the default, the file of `--config`, the environment, `--set`:

```sh
frameloom worker --config configs/cpu.yaml --set window.max_wait_ms=80
FRAMELOOM__WINDOW__MAX_WAIT_MS=80 frameloom worker --config configs/cpu.yaml
```

An element of a list is named by its index or its name (`routes.0.conf` or `routes.default.conf`; in
a variable `FRAMELOOM__ROUTES__DEFAULT__CONF`, with `_` for `-`). An unknown key is refused and the
nearest known one named; a wrong value is traced to the file's line, the variable or the option.
`frameloom doctor --config FILE` looks at the rest.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting.

    Attributes:
        path: its place; elements of lists stand as element 0.
        kind: its type and range, for people.
        default: as YAML writes it; empty for keys that each element of a list must have.
        text: what `configs/default.yaml` says of it, on one line.
    """

    path: Path
    kind: str
    default: str
    text: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENV_PREFIX + "__".join(str(part) for part in self.path).upper()


def rows() -> list[Row]:
    """Every setting, in the order of the file."""
    lines = (ROOT / _DEFAULTS).read_text(encoding="utf-8").splitlines()
    places = read_yaml("\n".join(lines), _DEFAULTS).lines
    return [
        Row(path, _kind(annotation), default, _comment(lines, places[path]))
        for path, annotation, default in _leaves(Settings, ())
    ]


def sections() -> dict[str, str]:
    """Section → what the file says of it."""
    lines = (ROOT / _DEFAULTS).read_text(encoding="utf-8").splitlines()
    places = read_yaml("\n".join(lines), _DEFAULTS).lines
    return {name: _comment(lines, places[name,]) for name in fields_of(Settings)}


def page() -> str:
    """The text of docs/configuration.md."""
    parts = [_HEAD]
    for section, said in sections().items():
        parts.append(f"\n## `{section}`\n\n{said}\n\n")
        parts.append("| key | type | default | meaning |\n|---|---|---|---|\n")
        mine = [row for row in rows() if row.path[0] == section]
        parts += [
            f"| `{dotted(row.path)}`<br>`{row.variable}` | {row.kind} | {_code(row.default)} |"
            f" {_cell(row.text)} |\n"
            for row in mine
        ]
    return "".join(parts)


def short_table() -> str:
    """The README's table of the keys used most."""
    known = {row.path: row for row in rows()}
    head = "| key | default | meaning |\n|---|---|---|\n"
    return head + "".join(
        f"| `{dotted(path)}` | {_code(known[path].default)} | {_cell(known[path].text)} |\n"
        for path in MOST_USED
    )


def with_table(readme: str) -> str:
    """The README with the table between its marks brought up to date."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{short_table()}{END}{after}"


def _leaves(struct: type[msgspec.Struct], path: Path) -> Iterator[tuple[Path, Any, str]]:
    """Path, type and default of every key that has no keys of its own."""
    for name, info in fields_of(struct).items():
        here = (*path, name)
        section, element = section_of(info.type), element_of(info.type)
        if section is not None:
            yield from _leaves(section, here)
        elif element is not None:
            yield from _leaves(element, (*here, 0))
        else:
            yield here, info.type, _default(struct, info.default)


def _default(struct: type[msgspec.Struct], value: Any) -> str:
    if struct is BucketSettings or value is msgspec.NODEFAULT:
        return ""
    plain = msgspec.to_builtins(value)
    if plain is None or isinstance(plain, bool):
        return {None: "null", True: "true", False: "false"}[plain]
    return str(plain)


def _comment(lines: list[str], number: int) -> str:
    """The lines of comment right above the line of this number (from 1), joined."""
    said: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.lstrip().startswith("#"):
            break
        said.insert(0, line.strip().removeprefix("#").strip())
    return " ".join(said)


def _kind(annotation: Any) -> str:
    bare, metas = _parts(annotation)
    if get_origin(bare) in (Union, types.UnionType):
        inner = [_kind(part) for part in get_args(bare) if part is not types.NoneType]
        return ", or ".join([*inner, *["null"] * (types.NoneType in get_args(bare))])
    if get_origin(bare) is Literal:
        return " \\| ".join(f"`{choice}`" for choice in get_args(bare))
    if get_origin(bare) is list:
        return f"list of {_kind(get_args(bare)[0])}"
    if issubclass(bare, Secret) or is_secret(annotation):
        return "secret"
    if hasattr(bare, "__members__"):
        return " \\| ".join(f"`{member.value}`" for member in bare)
    return _plain_kind(bare, metas)


def _plain_kind(bare: type, metas: list[msgspec.Meta]) -> str:
    for meta in metas:
        if meta.extra and "expected" in meta.extra:
            said = str(meta.extra["expected"])
            return "text" if said.startswith("a text") else said
    name = {bool: "true or false", int: "integer", float: "number", str: "text"}[bare]
    low = next((meta.ge if meta.ge is not None else meta.gt for meta in metas), None)
    high = next((meta.le for meta in metas), None)
    if low is None or high is None:
        return name
    above = "above " if metas[0].ge is None else ""
    # Ranges that end at the largest integer say nothing about the setting.
    if high >= 2**31 - 1:
        return f"{name}, at least {low:g}"
    step = next((meta.multiple_of for meta in metas if meta.multiple_of is not None), None)
    return f"{name}, {above}{low:g} to {high:g}" + (f" in steps of {step:g}" if step else "")


def _parts(annotation: Any) -> tuple[Any, list[msgspec.Meta]]:
    if get_origin(annotation) is not Annotated:
        return annotation, []
    bare, *extras = get_args(annotation)
    inner, metas = _parts(bare)
    return inner, [*metas, *(extra for extra in extras if isinstance(extra, msgspec.Meta))]


def _code(default: str) -> str:
    return f"`{default}`" if default else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write both tables."""
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
