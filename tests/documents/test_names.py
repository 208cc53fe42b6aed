"""What the documents name exists: commands, options, settings, metrics, modules, targets."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.metrics import DEVICE_TABLE, TABLE
from schemas.settings_check import known_keys
from tests.documents.blocks import BLOCKS, COMMANDS, DOCUMENTS, ROOT, Command, spans
from tests.documents.elsewhere import LIST, elsewhere
from tests.documents.options import TREE, frameloom_words, mistakes, names

LANGUAGES = {"sh", "text", "python", "yaml", "json"}
SECTIONS = {str(key[0]) for key in known_keys()}
METRICS = {metric.name for metric in (*TABLE, *DEVICE_TABLE)}
_SUFFIX = re.compile(r"_(total|sum|count|bucket)$")
_METRIC = re.compile(r"\bframeloom_[a-z_]*[a-z]\b(?![(*])")
_SETTING = re.compile(r"^([a-z_]+)((?:\.[A-Za-z0-9_-]+)+)(?=$|[ :=,])")
_TARGETS = re.compile(r"^([a-z]+):", re.MULTILINE)
FOREIGN = {"--add-config", "--jobs", "--json", "--scale", "-n", "-x", "-9"}
"""Options of make's arguments, Docker, Kafka's tools, pytest and kill."""

by_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def scripts_options() -> set[str]:
    """Options that programs beside the command line take."""
    sources = [
        path
        for folder in ("bench", "tests/scenario", "tests/fuzz", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".go", ".java", ".mjs", ".md"}
        and "node_modules" not in path.parts
    ]
    return {
        option for path in sources for option in re.findall(r"--[a-z][a-z-]+", path.read_text())
    }


def test_every_fenced_block_says_its_language() -> None:
    bare = [f"{b.document}:{b.line}" for b in BLOCKS if b.language not in LANGUAGES]
    assert bare == [], "sh for commands, which are run; text for anything else"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_and_options_exist(command: Command) -> None:
    words = frameloom_words(command.text)
    if words is not None:
        assert mistakes(words) == []


@by_document
def test_commands_named_in_the_text_exist(document: Path) -> None:
    wrong: list[str] = []
    for span in spans(document):
        words = re.sub(r"[\[\]…]|\.\.\.", " ", span).split()
        if words[:1] == ["frameloom"] and len(words) > 1:
            words = [part for word in words[1:] for part in word.split("|")[:1]]
        elif not (words and words[0] in TREE.commands and " -" in span):
            continue
        if not words[0].endswith((".py", "/")):
            wrong += [f"{span}: {mistake}" for mistake in mistakes(words)]
    assert wrong == []


@by_document
def test_options_named_in_the_text_exist(document: Path) -> None:
    known = names() | FOREIGN | scripts_options()
    alone = [span.split()[0].split("=")[0] for span in spans(document) if span.startswith("-")]
    assert [
        option for option in alone if re.match(r"--?[a-z]", option) and option not in known
    ] == []


@by_document
def test_settings_named_in_the_text_exist(document: Path) -> None:
    known = set(known_keys())
    wrong: list[str] = []
    for span in spans(document):
        found = _SETTING.match(span)
        if found is None or found[1] not in SECTIONS or span.endswith((".py", "()")):
            continue
        parts = found[2].removeprefix(".").split(".")
        if found[1] == "routes":
            # routes.N.conf, routes.default.conf, or routes.conf for that of any route.
            parts = ["#", *(parts if ("routes", 0, parts[0]) in known else parts[1:])]
        if parts[1:2] == ["buckets"] and len(parts) > 3:
            parts[2] = "#"
        key = (found[1], *(0 if part == "#" else part for part in parts))
        if key not in known:
            wrong.append(span)
    assert wrong == []


@by_document
def test_metrics_named_exist(document: Path) -> None:
    named = set(_METRIC.findall(document.read_text()))
    assert [
        name for name in sorted(named) if METRICS.isdisjoint({name, _SUFFIX.sub("", name)})
    ] == []


def test_what_is_not_run_here_is_short_and_runs_elsewhere() -> None:
    every = COMMANDS
    for entry in LIST:
        assert (ROOT / entry.instead).exists(), entry
        assert any(elsewhere(command) is entry for command in every), f"covers nothing: {entry}"
    ours = [command for command in every if not command.document.startswith("examples/")]
    assert sum(elsewhere(command) is not None for command in ours) < len(ours) / 2


@pytest.mark.parametrize("command", [c for c in COMMANDS if elsewhere(c) is not None], ids=str)
def test_what_is_not_run_here_names_what_there_is(command: Command) -> None:
    words = shlex.split(command.text)
    if words[0] == "make":
        assert words[1] in _TARGETS.findall((ROOT / "Makefile").read_text())
    if words[0] == "python" and "-m" in words[:2]:
        source = ROOT / f"{words[2].replace('.', '/')}.py"
        options = [word for word in words[3:] if word.startswith("--")]
        assert [option for option in options if f'"{option}"' not in source.read_text()] == []
