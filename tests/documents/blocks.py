"""The documents, their fenced blocks, and the commands in those marked `sh`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/README.md")]
)
_FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s+)#\s.*$")
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is that of its first line, from 1."""

    document: str
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command of a shell, without its comment."""

    document: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line} {self.text}"


def _blocks() -> Iterator[Block]:
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start(3)) + 1
            name = str(document.relative_to(ROOT))
            yield Block(name, line, match[2], textwrap.dedent(match[3]))


def _commands() -> Iterator[Command]:
    for block in _blocks():
        if block.language != "sh":
            continue
        for number, line in enumerate(block.text.splitlines()):
            text = _COMMENT.sub("", line).strip()
            if text:
                yield Command(block.document, block.line + number, text)


def spans(document: Path) -> list[str]:
    """The document's code spans, outside of fenced blocks."""
    return _SPAN.findall(_FENCE.sub("", document.read_text(encoding="utf-8")))


BLOCKS = list(_blocks())
"""Every fenced block of every document."""
COMMANDS = list(_commands())
"""Every command of the blocks marked `sh`."""
