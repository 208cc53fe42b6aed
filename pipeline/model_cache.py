"""Exported files, choices of backends and measured surfaces, kept between starts.

Several workers may share a cache: files are written aside and renamed, and who makes one holds its
lock, so that the others wait for it instead of making it again. Nothing in it is needed: a folder
that is deleted is filled again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from schemas.errors import ConfigError

S = TypeVar("S", bound=msgspec.Struct)

_LOOK_S = 0.1
"""A lock of another process is looked at so often: no call waits for a lock and for a signal."""


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
    def making(self, name: str, stopping: Callable[[], bool] = lambda: False) -> Generator[None]:
        """Held by the one process that makes what this name stands for; others wait, until they
        get it or `stopping` says yes."""
        with (self._folder / f".{name}.lock").open("w") as lock:
            while not _taken(lock) and not stopping():
                time.sleep(_LOOK_S)
            yield

    def choice(self, key: str) -> Choice | None:
        """What was chosen for this key; None where nothing was, or nothing that can be read."""
        saved = self.read(f"choice-{key}", Choice)
        return None if saved is None else msgspec.structs.replace(saved, cached=True)

    def keep(self, key: str, choice: Choice) -> None:
        """Save a choice, whole or not at all. A full disk is no reason not to start."""
        self.write(f"choice-{key}", choice)

    def forget(self, key: str) -> None:
        """Drop a choice that turned out to be of no use."""
        self.remove(f"choice-{key}")

    def read(self, name: str, kind: type[S]) -> S | None:
        """A document; None where there is none, or none that can be read."""
        try:
            return msgspec.json.decode(self._file(name).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def write(self, name: str, document: msgspec.Struct) -> None:
        """Save a document, whole or not at all. A full disk is no reason not to start."""
        with suppress(OSError):
            handle, aside = tempfile.mkstemp(dir=self._folder, prefix=f".{name}-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.format(msgspec.json.encode(document), indent=2))
                Path(aside).replace(self._file(name))
            finally:
                Path(aside).unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Drop a document, if it is there."""
        with suppress(OSError):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Without locks (some network file systems) two may make the same: harmless.
        return True
    return True
