"""Files that become known one by one, as one stream: those of a list, or of a watched folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Protocol

from frameloom.sources import FrameSource, Unreadable


class Paths(Protocol):
    """Where the names come from."""

    def paths(self) -> AsyncGenerator[Path | Unreadable, None]:
        """Names, in order; close it explicitly (`aclosing`)."""
        ...


class FileFeed:
    """A stream of files whose names come one by one.

    Args:
        name: of the stream.
        names: where they come from.
        open_file: a file as a source.
    """

    def __init__(self, name: str, names: Paths, open_file: Callable[[Path], FrameSource]) -> None:
        self._name = name
        self._names = names
        self._open_file = open_file

    @property
    def name(self) -> str:
        """What its stream is called unless the user says otherwise."""
        return self._name

    @property
    def total(self) -> None:
        """Nobody knows."""
        return

    def paths(self) -> AsyncGenerator[Path | Unreadable, None]:
        """See `Paths.paths`."""
        return self._names.paths()

    def open_file(self, path: Path) -> FrameSource:
        """The file as a source."""
        return self._open_file(path)
