"""The suspects of one group on this host, and the files that outlive the workers.

    <journal_dir>/<group>-<hash>/
        lock            held for the moment in which the folder is read or changed
        suspects        what is held of whom (MessagePack)
        N.journal       which records are inside a native call of one process; locked while it lives
        N.fault         what the process wrote while it crashed: empty unless a signal ended it
        N.stuck         what it wrote when the interpreter itself hung in a native call

A worker that dies leaves its journal unlocked. Whoever comes by next, the worker that takes its
place or one that is given its partitions, adopts it: the records in it become suspects for every
worker of the group here, whatever its device; in a fleet, N begins with the device's label. Other
hosts have folders of their own: a record that crashes workers costs each host its own crashes
before it is convicted there.
"""

from __future__ import annotations

import faulthandler
import fcntl
import hashlib
import os
import re
import sysconfig
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from pipeline.item import Coordinates
from pipeline.journal import Entry, Journal, read_journal
from pipeline.ledger import PartitionId
from pipeline.suspect import Death, Suspect, after_death
from schemas.errors import ConfigError
from schemas.settings import Settings
from workers.logs import Log

KEPT_US = 7 * 24 * 3600 * 1_000_000
"""Suspicion ends after a week, as Kafka's own memory of a record does by default."""
TRACE_BYTES = 4096
"""How much of a crash's trace is logged."""

STEADY_WATCH = bool(sysconfig.get_config_var("HAVE_SEM_CLOCKWAIT"))
"""Whether the interpreter's own watch runs on the monotonic clock: a step of the wall clock must
not end a worker. Linux has had what it takes since glibc 2.30."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Suspect])


def journal_folder(settings: Settings) -> Path:
    """The folder of this group on this broker. The broker counts, because offsets are its own."""
    kafka, chosen = settings.kafka, settings.lifecycle.journal_dir
    base = Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"frameloom-{os.getuid()}"
    identity = hashlib.sha256(f"{kafka.bootstrap_servers}\n{kafka.group_id}".encode()).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", kafka.group_id)[:64]
    return base / f"{readable}-{identity[:12]}"


@dataclass(frozen=True, slots=True)
class _Dead:
    """What a process left behind."""

    journal: Path
    entries: tuple[Entry, ...]
    crashed: bool
    stuck: bool
    trace: str

    def death_of(self, entry: Entry) -> Death | None:
        """How the worker died with this call under way; None if another call is known to be it."""
        if self.crashed:
            return Death.CRASH
        if any(each.hung for each in self.entries):
            return Death.HANG if entry.hung else None
        return Death.HANG if self.stuck else Death.KILLED


class SuspectFolder:
    """The files. Every method takes the folder's lock for its moment.

    Args:
        path: made if missing, for this user alone.
        log: for what is found.
        now_us: Unix microseconds.

    Raises:
        ConfigError: the folder cannot be used.
    """

    def __init__(
        self, path: Path, log: Log, now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self.path = path
        self._log = log
        self._now_us = now_us
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = path.stat().st_uid
        except OSError as error:
            raise ConfigError(f"lifecycle.journal_dir: {path}: {error.strerror}") from error
        if owner != os.getuid():
            raise ConfigError(f"lifecycle.journal_dir: {path} belongs to another user")

    def open_journal(self, device: str = "") -> OwnFiles:
        """The files of this process, from now on known to be alive. `device`: stands in their
        names, and so in what is logged of them.

        Raises:
            ConfigError: they cannot be made.
        """
        name = f"{os.getpid()}-{time.monotonic_ns():x}.journal"
        if device:
            name = f"{device.replace(':', '-')}-{name}"
        try:
            with self._locked():
                return OwnFiles(self.path / name)
        except OSError as error:
            raise ConfigError(f"lifecycle.journal_dir: {self.path}: {error.strerror}") from error

    def adopt(self) -> dict[Coordinates, Suspect]:
        """Take over what dead processes left; everybody who is under suspicion now."""
        with self._locked():
            known = self._read()
            orphans = list(self._orphans())
            for dead in orphans:
                self._take_over(dead, known)
            if any(dead.entries for dead in orphans):
                self._write(known.values())
            # Only now: what is held of them is on file.
            for dead in orphans:
                _remove(dead.journal)
            return known

    def forget(self, innocent: Iterable[Coordinates]) -> dict[Coordinates, Suspect]:
        """These are under suspicion no longer; everybody who still is."""
        with self._locked():
            known = self._read()
            for at in innocent:
                known.pop(at, None)
            self._write(known.values())
            return known

    def _orphans(self) -> Iterator[_Dead]:
        for journal in sorted(self.path.glob("*.journal")):
            # A process that ends in order removes its own, whenever it likes.
            with suppress(FileNotFoundError), journal.open("rb") as file:
                if _try_lock(file):
                    yield _left_behind(journal)

    def _take_over(self, dead: _Dead, known: dict[Coordinates, Suspect]) -> None:
        now_us = self._now_us()
        blamed: set[Coordinates] = set()
        for entry in dead.entries:
            death = dead.death_of(entry)
            if death is None:
                continue
            # A segment may be inside two stages, with one frame here and the next one there: the
            # death of one process counts once.
            fresh = [at for at in entry.records if at not in blamed]
            blamed.update(fresh)
            for at in fresh:
                known[at] = after_death(known.get(at), at, entry.stage.value, death, now_us)
            self._log.warning(
                "suspects_found",
                death=death.value,
                stage=entry.stage.value,
                records=[f"{at.topic}/{at.partition}/{at.offset}" for at in entry.records[:5]],
                count=len(entry.records),
                journal=dead.journal.name,
            )
        if dead.trace:
            self._log.warning("crash_trace", journal=dead.journal.name, trace=dead.trace)

    def _read(self) -> dict[Coordinates, Suspect]:
        try:
            content = (self.path / "suspects").read_bytes()
        except FileNotFoundError:
            return {}
        try:
            known = _DECODER.decode(content)
        except msgspec.MsgspecError:
            # The file is replaced whole: this is another version's, or a disk's doing.
            self._log.warning("suspects_unreadable", path=str(self.path))
            return {}
        oldest_us = self._now_us() - KEPT_US
        return {suspect.at: suspect for suspect in known if suspect.noted_us >= oldest_us}

    def _write(self, known: Iterable[Suspect]) -> None:
        draft = self.path / "suspects.new"
        draft.write_bytes(_ENCODER.encode(list(known)))
        draft.replace(self.path / "suspects")

    @contextmanager
    def _locked(self) -> Generator[None]:
        with (self.path / "lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class OwnFiles:
    """What this process would leave behind: its journal, locked, and its crash traces.

    Attributes:
        journal: what the guard writes to.
    """

    def __init__(self, path: Path) -> None:
        self.journal = Journal(path)
        self._lock = path.open("rb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._fault = path.with_suffix(".fault").open("wb")
        self._stuck = path.with_suffix(".stuck").open("wb")
        self._catching = self._watching = False

    def catch_crashes(self) -> None:
        """From now on a signal that ends the process for a fault leaves its trace."""
        faulthandler.enable(self._fault)
        self._catching = True

    def exit_when_stuck(self, after_s: float) -> None:
        """Unless called again within `after_s`, the process ends with code 1, even when native
        code keeps the interpreter from running. The call replaces the one before it."""
        if STEADY_WATCH:
            self._watching = True
            faulthandler.dump_traceback_later(after_s, file=self._stuck, exit=True)

    def close(self) -> None:
        """The process ends in order: there is nothing to adopt. Safe to call twice."""
        # The process has one of each, and they may be somebody else's.
        if self._watching:
            faulthandler.cancel_dump_traceback_later()
        if self._catching:
            faulthandler.disable()
        self._catching = self._watching = False
        self.journal.close()
        for file in (self._fault, self._stuck, self._lock):
            file.close()
        _remove(self.journal.path)


class Suspects:
    """Who is under suspicion, as admission asks for each record. Used by one thread.

    Args:
        folder: None for a worker without a journal, which suspects nobody.
    """

    def __init__(self, folder: SuspectFolder | None = None) -> None:
        self._folder = folder
        self._known: dict[Coordinates, Suspect] = {}

    @property
    def count(self) -> int:
        """How many records are under suspicion."""
        return len(self._known)

    def refresh(self) -> None:
        """Look again: workers may have died since. A few file operations."""
        if self._folder is not None:
            self._known = self._folder.adopt()

    def find(self, at: Coordinates) -> Suspect | None:
        """What is held of the record, or None for nearly all of them."""
        return self._known.get(at)

    def acquit(self, at: Coordinates) -> None:
        """The record ran alone, and nothing happened."""
        self._forget([at])

    def committed(self, partition: PartitionId, offset: int) -> None:
        """Records below `offset` never come again."""
        if self._known:
            self._forget(
                at
                for at in self._known
                if (at.topic, at.partition) == partition and at.offset < offset
            )

    def _forget(self, innocent: Iterable[Coordinates]) -> None:
        chosen = [at for at in innocent if at in self._known]
        if chosen and self._folder is not None:
            self._known = self._folder.forget(chosen)


def _left_behind(journal: Path) -> _Dead:
    crash, stuck = _text(journal, ".fault"), _text(journal, ".stuck")
    entries = tuple(read_journal(journal))
    return _Dead(journal, entries, bool(crash), bool(stuck), crash or stuck)


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text(journal: Path, suffix: str) -> str:
    try:
        with journal.with_suffix(suffix).open("rb") as file:
            return file.read(TRACE_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _remove(journal: Path) -> None:
    for suffix in (".fault", ".stuck", ".journal"):
        journal.with_suffix(suffix).unlink(missing_ok=True)
