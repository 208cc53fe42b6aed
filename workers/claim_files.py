"""Claims on files and objects: what `open` and fsspec read, on threads of their own."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from pipeline.claim_rules import fault
from schemas.claim_uri import FILE, Location
from schemas.errors import PoisonError, Reason, TransientError
from schemas.frame import Claim
from workers.claim_bytes import CHUNK_BYTES, ClaimBytes

_NEVER = frozenset(
    {
        errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP,
        errno.ENAMETOOLONG, errno.ENXIO, errno.EINVAL,
    }
)  # fmt: skip
"""Trying again does not mend these."""


def read_file(
    location: Location, claim: Claim, prefixes: tuple[Location, ...], until_at: float
) -> memoryview:
    """A file below one of the prefixes once every symbolic link was followed: what was opened is
    judged, not what the name meant a moment before. Blocks.

    Args:
        location: a file that is allowed by its name.
        claim: what it must hold.
        prefixes: places that are allowed; those of other schemes do not count.
        until_at: `time.monotonic` at which to give up between two reads.

    Raises:
        PoisonError: CLAIM_REFUSED, CLAIM_MISSING or CLAIM_MISMATCH.
        TransientError: the file system failed.
    """
    with _errors(location):
        # Not blocked by a pipe without a writer; it is refused below.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(location.plain_path, flags)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise fault(Reason.CLAIM_REFUSED, f"{location.uri} is no plain file")
            _check_place(descriptor, location, prefixes)
            collected = ClaimBytes(claim)
            collected.expect(found.st_size)
            with open(descriptor, "rb", closefd=False) as file:
                return _read_all(file, collected, until_at)
        finally:
            os.close(descriptor)


def read_object(location: Location, claim: Claim, until_at: float) -> memoryview:
    """An object of a store that fsspec knows. Blocks. Arguments and errors as `read_file`; a scheme
    whose package is not installed raises PoisonError CLAIM_REFUSED."""
    import fsspec  # noqa: PLC0415 (its stores are heavy, and nearly nobody needs them)

    try:
        store = fsspec.filesystem(location.scheme)
    except ImportError as error:
        raise fault(
            Reason.CLAIM_REFUSED, f"{location.scheme} needs a package of its own here: {error}"
        ) from error
    with _errors(location):
        name = f"{location.authority}{location.plain_path}"
        # Its own caches would read ahead of the claim's length.
        with store.open(name, "rb", cache_type="none") as file:
            collected = ClaimBytes(claim)
            size = getattr(file, "size", None)
            if isinstance(size, int):
                collected.expect(size)
            return _read_all(cast("BinaryIO", file), collected, until_at)


def _read_all(file: BinaryIO, collected: ClaimBytes, until_at: float) -> memoryview:
    while chunk := file.read(CHUNK_BYTES):
        collected.add(chunk)
        if time.monotonic() > until_at:
            # Whoever waited has given up, and this thread is wanted.
            raise TimeoutError
    return collected.whole()


def _check_place(descriptor: int, location: Location, prefixes: tuple[Location, ...]) -> None:
    opened = _path_of(descriptor, location)
    for prefix in prefixes:
        if prefix.scheme == FILE and opened.is_relative_to(os.path.realpath(prefix.plain_path)):
            return
    raise fault(
        Reason.CLAIM_REFUSED,
        f"{location.uri} leads to a file that is below none of claim_check.allowed_prefixes",
    )


def _path_of(descriptor: int, location: Location) -> Path:
    """The real path of an open file. Where the system does not say, that of its name now."""
    link = Path(f"/proc/self/fd/{descriptor}")
    return link.readlink() if link.exists() else Path(os.path.realpath(location.plain_path))


@contextmanager
def _errors(location: Location) -> Generator[None]:
    try:
        yield
    except (PoisonError, TimeoutError):
        raise
    except FileNotFoundError as error:
        raise fault(Reason.CLAIM_MISSING, f"{location.uri} is not there") from error
    except OSError as error:
        why = f"{location.uri}: {error.strerror or type(error).__name__}"
        if error.errno in _NEVER or isinstance(error, PermissionError):
            raise fault(Reason.CLAIM_MISSING, why) from error
        raise TransientError(why) from error
