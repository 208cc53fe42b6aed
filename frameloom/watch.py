"""Files of a folder as they are completed: closed by their writer, or moved in (Linux, inotify).

A file that is still being written is never among them: the kernel says when its writer closes it,
and for what lay there before the watch began, whether a writer has it open.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import stat
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from asyncinotify import Inotify, Mask

from frameloom.sources import Unreadable
from schemas.errors import ConfigError

_UNTOUCHED_NS = 10 * 10**9
"""How long a file must have been left alone where the kernel does not say whether it is open."""


_REMEMBERED = 65_536
"""Files sent last, so that a second event of the same content does not send them again."""


@dataclass(frozen=True, slots=True)
class _State:
    """What tells one content of a file from the next."""

    inode: int
    size: int
    written_ns: int
    changed_ns: int


class WatchedPaths:
    """Completed files of one folder, not of those in it. Names that begin with a dot are the
    temporary ones of copying programs, and are left out until they are renamed.

    Args:
        folder: must exist.
        suffixes: of the files wanted, lower case.
        existing: first those that are there already, in the order of their names.
    """

    def __init__(self, folder: Path, suffixes: frozenset[str], *, existing: bool) -> None:
        self._folder = folder
        self._suffixes = suffixes
        self._existing = existing
        self._sent: OrderedDict[Path, _State] = OrderedDict()

    async def paths(self) -> AsyncGenerator[Path | Unreadable, None]:
        """Files as they are completed, until it is closed or the folder is removed.

        Raises:
            ConfigError: the folder cannot be watched.
        """
        mask = Mask.CLOSE_WRITE | Mask.MOVED_TO | Mask.DELETE_SELF | Mask.MOVE_SELF
        with Inotify() as inotify:
            try:
                inotify.add_watch(self._folder, mask | Mask.ONLYDIR)
            except OSError as error:
                raise ConfigError(f"{self._folder}: cannot be watched: {error.strerror}") from error
            # Watched first and listed then: what is completed in between is in both, once.
            newest_ns = time.time_ns()
            if self._existing:
                for path, state in await asyncio.to_thread(self._complete, 0):
                    self._remember(path, state)
                    yield path
            while True:
                event = await inotify.get()
                if event.mask & (Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.IGNORED):
                    yield Unreadable(str(self._folder), "the watched folder is gone")
                    return
                if event.mask & Mask.Q_OVERFLOW:
                    # The kernel kept as many events as it may; what it could not say is listed.
                    found = await asyncio.to_thread(self._complete, newest_ns)
                elif event.mask & Mask.ISDIR:
                    continue
                else:
                    found = self._completed(self._folder / str(event.name))
                for path, state in found:
                    if self._sent.get(path) != state:
                        self._remember(path, state)
                        newest_ns = max(newest_ns, state.changed_ns)
                        yield path

    def _remember(self, path: Path, state: _State) -> None:
        self._sent[path] = state
        self._sent.move_to_end(path)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _completed(self, path: Path) -> list[tuple[Path, _State]]:
        state = _state(path) if self._wanted(path) else None
        return [] if state is None else [(path, state)]

    def _wanted(self, path: Path) -> bool:
        return not path.name.startswith(".") and path.suffix.lower() in self._suffixes

    def _complete(self, since_ns: int) -> list[tuple[Path, _State]]:
        """Files of the folder that changed since, by name, without those being written: they
        will come when they are closed."""
        try:
            paths = sorted(self._folder.iterdir())
        except OSError:
            return []  # removed: the event of that comes
        found = [each for path in paths for each in self._completed(path)]
        return [
            (path, state)
            for path, state in found
            if state.changed_ns >= since_ns and not being_written(path)
        ]


def _state(path: Path) -> _State | None:
    """None for what is no file with something in it."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        return None
    return _State(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def being_written(path: Path) -> bool:
    """Whether somebody has the file open for writing; where the kernel does not tell (another
    user's file, a network file system), whether it was changed in the last ten seconds.

    A read lease is granted only on a file that nobody has open for writing (fcntl(2)).
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        # A writer that comes in between breaks the lease with a signal; this one is ignored by
        # default, the usual one (SIGIO) would end the process.
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except OSError:
        return time.time_ns() - os.fstat(handle).st_ctime_ns < _UNTOUCHED_NS
    finally:
        os.close(handle)
    return False
