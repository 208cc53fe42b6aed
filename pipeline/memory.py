"""How much memory a device has left, and how much a run takes: the host's, or a GPU's."""

from __future__ import annotations

import ctypes
import gc
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import psutil
import torch

T = TypeVar("T")

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's: gives free pages of all its arenas back to the kernel. Other C libraries have none."""
if _trim is not None:
    _trim.argtypes = [ctypes.c_size_t]

SAMPLE_S = 0.001
"""Between two looks at the process's memory while the model runs."""


class Memory(Protocol):
    """A device's memory. Used while nothing else runs there."""

    def free_bytes(self) -> int:
        """What this process could still take."""
        ...

    def held_bytes(self) -> int:
        """What it holds."""
        ...

    def peak_of(self, run: Callable[[], T]) -> tuple[T, int]:
        """What `run` returns, and the most that was held meanwhile, bytes."""
        ...

    def release(self) -> None:
        """Give back what nobody uses: before what a run takes is measured, and after one that found
        no memory."""
        ...


def memory_of(device: torch.device) -> Memory:
    """The memory that a model on this device works in."""
    return CudaMemory(device) if device.type == "cuda" else HostMemory()


class HostMemory:
    """Main memory of this process. Implements `Memory`.

    Args:
        cgroups: where the kernel shows control groups.
        own: where it shows to which of them this process belongs.
    """

    def __init__(
        self,
        cgroups: Path = Path("/sys/fs/cgroup"),
        own: Path = Path("/proc/self/cgroup"),
    ) -> None:
        self._cgroups = cgroups
        self._own = own

    def free_bytes(self) -> int:
        """The machine's, within the limits of the control group and of the process."""
        free = psutil.virtual_memory().available
        free = min([free, *self._group_rests()])
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            free = min(free, limit - psutil.Process().memory_info().vms)
        return max(0, free)

    def held_bytes(self) -> int:
        return psutil.Process().memory_info().rss

    def peak_of(self, run: Callable[[], T]) -> tuple[T, int]:
        """The peak is sampled by a thread: the kernel's own high-water mark cannot be reset
        everywhere."""
        process, done = psutil.Process(), threading.Event()
        peaks = [process.memory_info().rss]

        def watch() -> None:
            while not done.wait(SAMPLE_S):
                peaks[0] = max(peaks[0], process.memory_info().rss)

        watcher = threading.Thread(target=watch, name="memory-peak", daemon=True)
        watcher.start()
        try:
            result = run()
        finally:
            done.set()
            watcher.join()
        return result, max(peaks[0], process.memory_info().rss)

    def release(self) -> None:
        """Also what the C library holds for later: a run that takes that again seems to take
        nothing."""
        gc.collect()
        if _trim is not None:
            _trim(0)

    def _group_rests(self) -> list[int]:
        """What the limits of this process's control groups leave, version 2 and 1."""
        rests: list[int] = []
        try:
            lines = self._own.read_text("utf-8").splitlines()
        except OSError:
            lines = []
        paths = {parts[1]: parts[2] for line in lines if len(parts := line.split(":", 2)) == 3}
        named = next((paths[names] for names in paths if "memory" in names.split(",")), None)
        for root, path, limit, used in (
            (self._cgroups, paths.get("", "/"), "memory.max", "memory.current"),
            (self._cgroups / "memory", named or "/", "memory.limit_in_bytes",
             "memory.usage_in_bytes"),
        ):  # fmt: skip
            folder = root / path.lstrip("/")
            for each in (folder, *folder.parents):
                if each.is_relative_to(root):
                    rests += _rest(each, limit, used)
        return rests


class CudaMemory:
    """A GPU's memory, as torch and the driver count it. Implements `Memory`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free_bytes(self) -> int:
        """The driver's, and what torch has taken from it and does not use."""
        free, _ = torch.cuda.mem_get_info(self._device)
        cached = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(
            self._device
        )
        return free + cached

    def held_bytes(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def peak_of(self, run: Callable[[], T]) -> tuple[T, int]:
        """Torch's peak; and what libraries took from the driver without it, for good."""
        before = self._outside()
        torch.cuda.reset_peak_memory_stats(self._device)
        result = run()
        torch.cuda.synchronize(self._device)
        peak = torch.cuda.max_memory_allocated(self._device)
        return result, peak + max(0, self._outside() - before)

    def release(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()

    def _outside(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)


def _rest(folder: Path, limit: str, used: str) -> list[int]:
    """What one group's limit leaves; files that it could drop at any time count as free."""
    try:
        most = (folder / limit).read_text("utf-8").strip()
        held = int((folder / used).read_text("utf-8"))
        if most == "max":
            return []
        stat = (folder / "memory.stat").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return []
    droppable = [
        int(line.split()[1]) for line in stat
        if line.startswith(("inactive_file ", "total_inactive_file "))
    ]  # fmt: skip
    return [max(0, int(most) - held + max(droppable, default=0))]
