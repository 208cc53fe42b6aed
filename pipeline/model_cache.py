"""Exported files and choices of backends, kept between starts.

Several workers may share a cache: files are written aside and renamed, and who makes one holds its
lock, so that the others wait for it instead of making it again. Nothing in it is needed: a folder
that is deleted is filled again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from schemas.errors import ConfigError


class CacheError(ConfigError):
    """The cache's folder cannot be used."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one backend.

    Attributes:
        backend: as in `ModelInfo.backend`.
        img_per_s: shape and batch size → pictures per second, on a CPU with nothing else to do;
            empty where it was not measured.
        iou: the least overlap of its boxes with those of torch in float32; None without comparison.
        score: the largest difference of their scores.
        refused: why it may not serve; empty if it may.
    """

    backend: str
    img_per_s: dict[str, float] = {}
    iou: float | None = None
    score: float | None = None
    refused: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which backend serves, and why.

    Attributes:
        backend: as in `ModelInfo.backend`.
        figures: of all that were looked at.
        cached: chosen at an earlier start.
    """

    backend: str
    figures: tuple[Figure, ...] = ()
    cached: bool = False


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/frameloom`, or `~/.cache/frameloom`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.cache").expanduser()) / "frameloom"


def key_of(parts: Mapping[str, object]) -> str:
    """A name for whatever these parts determine, 16 hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(dict(parts), order="sorted")).hexdigest()[:16]


class ModelCache:
    """A folder with one file (or folder) per key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        return self._folder

    def open(self) -> None:
        """Make the folder, for its owner only.

        Raises:
            CacheError: it cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise CacheError(
                f"device.model_cache_dir {self._folder}: cannot be written: {error.strerror}"
            ) from error

    @contextmanager
    def making(self, name: str) -> Generator[None]:
        """Held by the one process that makes what this name stands for; others wait."""
        with (self._folder / f".{name}.lock").open("w") as lock:
            # Without locks (some network file systems) two may make the same: harmless.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def choice(self, key: str) -> Choice | None:
        """What was chosen for this key; None where nothing was, or nothing that can be read."""
        try:
            saved = msgspec.json.decode(self._choice_file(key).read_bytes(), type=Choice)
        except (OSError, msgspec.DecodeError):
            return None
        return msgspec.structs.replace(saved, cached=True)

    def keep(self, key: str, choice: Choice) -> None:
        """Save a choice, whole or not at all. A full disk is no reason not to start."""
        with suppress(OSError):
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".choice-")
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(choice), indent=2))
            Path(name).replace(self._choice_file(key))

    def forget(self, key: str) -> None:
        """Drop a choice that turned out to be of no use."""
        with suppress(OSError):
            self._choice_file(key).unlink(missing_ok=True)

    def _choice_file(self, key: str) -> Path:
        return self._folder / f"choice-{key}.json"
