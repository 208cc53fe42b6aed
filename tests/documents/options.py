"""The command line's own tree: which commands there are, and which options each takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import typer

from frameloom.cli import app

TREE: Any = typer.main.get_command(app)
_OPTION = re.compile(r"^--?[A-Za-z][A-Za-z-]*")


def names(command: Any = TREE) -> set[str]:
    """Every option of the command and of those below it."""
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    known.add("--help")
    for child in getattr(command, "commands", {}).values():
        known |= names(child)
    return known


def frameloom_words(text: str) -> list[str] | None:
    """The words after `frameloom` in a command of a shell, up to a pipe; None without it."""
    words = shlex.split(text.replace("|", " | "), comments=True)
    starts = [
        i
        for i, word in enumerate(words)
        if word in ("frameloom", ".venv/bin/frameloom")
        and (i == 0 or words[i - 1] == "|" or re.match(r"[A-Z_]+=", words[i - 1]))
    ]
    if "docker" in words and "cli" in words:
        starts = [words.index("cli")]
    if not starts:
        return None
    after = words[starts[0] + 1 :]
    return after[: after.index("|")] if "|" in after else after


def mistakes(words: Sequence[str]) -> list[str]:
    """What the command line would not know in these words."""
    command, rest = TREE, list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in command.commands:
            return [f"no command {name!r}"]
        command = command.commands[name]
    options = [found[0] for word in rest if (found := _OPTION.match(word))]
    return [f"no option {option}" for option in options if option not in names(command)]
