"""The machine that a worker would run on: cores, memory, disk, the journal's folder, its port."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from frameloom.doctor_finding import Finding, ok, problem, skipped, warning
from schemas.settings import MIB, Settings
from workers.suspects import journal_folder

CGROUP = Path("/sys/fs/cgroup")
MODEL_BYTES = 1024 * MIB
"""About what Python, torch and a small model hold, once warmed up."""
FREE_DISK_BYTES = 200 * MIB


def cores(settings: Settings, cgroup: Path = CGROUP) -> Finding:
    """Threads against the cores that this process may use."""
    usable = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    allowed = usable if quota is None else min(usable, quota)
    threads = (settings.device.decode_threads or usable) + (settings.device.model_threads or 0)
    said = f"{usable} cores" + ("" if quota is None else f", of which this container has {quota:g}")
    if quota is not None and usable > 2 * quota:
        return warning(
            "cpu",
            f"{said}: torch and the decoders would start {usable} threads on {quota:g} cores' time",
            f"set device.decode_threads and device.model_threads to {max(1, round(quota))}",
        )
    if settings.device.decode_threads + settings.device.model_threads > 2 * allowed:
        return warning(
            "cpu",
            f"{said}, and the settings ask for {threads} threads",
            f"set device.decode_threads and device.model_threads to at most {max(1, int(allowed))}",
        )
    return ok("cpu", said)


def memory(settings: Settings, partitions: int = 1, cgroup: Path = CGROUP) -> Finding:
    """What may be in flight against what is free.

    Args:
        partitions: of the input topics: each is prefetched.
    """
    free = psutil.virtual_memory().available
    limit = _memory_limit(cgroup)
    if limit is not None:
        free = min(free, limit)
    prefetch = partitions * settings.kafka.max_partition_fetch_bytes
    needed = MODEL_BYTES + settings.flow.max_bytes + prefetch
    said = f"{_gib(free)} free, a full worker takes about {_gib(needed)}"
    if free < needed:
        return warning(
            "memory",
            f"{said} ({_gib(settings.flow.max_bytes)} of it flow.max_bytes)",
            f"set flow.max_bytes to {max(settings.limits.max_record_bytes, free // 4)}, or free "
            "memory",
        )
    return ok("memory", said)


def journal(settings: Settings) -> Finding:
    """The folder in which a worker notes what is inside native code."""
    folder = journal_folder(settings)
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return problem("journal", f"{there} is a file, a folder is needed", _other_folder())
    if folder == there and folder.stat().st_uid != os.getuid():
        return problem(
            "journal",
            f"{folder} belongs to uid {folder.stat().st_uid}, this is {os.getuid()}",
            f"chown -R {os.getuid()} {folder}, or " + _other_folder(),
        )
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return problem("journal", f"{there}: {error.strerror}", _other_folder())
    return ok("journal", f"{folder} can be written and locked")


def disk(settings: Settings) -> Finding:
    """Room for journals, traces and what libraries keep."""
    folder = journal_folder(settings)
    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    if free < FREE_DISK_BYTES:
        return warning(
            "disk", f"{free // MIB} MiB free at {there}", "free space, or " + _other_folder()
        )
    return ok("disk", f"{_gib(free)} free at {there}")


def port(settings: Settings) -> Finding:
    """Whether health and metrics can be served."""
    http = settings.http
    if not http.enabled or http.port == 0:
        return skipped(
            "http",
            "http.port is 0: a free one is chosen" if http.enabled else "http.enabled is false",
        )
    try:
        with socket.create_server((http.host, http.port)):
            return ok("http", f"{http.host}:{http.port} is free")
    except OSError as error:
        return problem(
            "http",
            f"{http.host}:{http.port}: {error.strerror} (a worker that runs already?)",
            "set http.port: 0 for any free port, or another one",
        )


def machine(settings: Settings, partitions: int) -> Iterator[Finding]:
    """All of it."""
    yield cores(settings)
    yield memory(settings, partitions)
    yield disk(settings)
    yield journal(settings)
    yield port(settings)


def _other_folder() -> str:
    return "set lifecycle.journal_dir to a folder of this user on a local disk"


def _quota(cgroup: Path) -> float | None:
    """Cores that the container may use, by its quota; None without one."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _memory_limit(cgroup: Path) -> int | None:
    """Bytes that the container has left; None without a limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        return None if limit == "max" else max(0, int(limit) - used)
    except (OSError, ValueError):
        return None


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"
