"""`--devices 0,1`: which processes that makes, and what each may use of the machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from schemas.errors import ConfigError
from schemas.settings import Settings

OPTION = "--devices"
MOST = 64
"""Processes of one fleet."""
_ALL, _CPU = "all", "cpu"
_CUDA = re.compile(r"(?:cuda:)?([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class Device:
    """One process's device.

    Attributes:
        label: stands in metrics and logs: `cuda:N` with N as the machine counts, `cuda:N.K` for the
            K-th of several processes on it, or `cpu:N` with N as the list counts.
        name: the `device.name` of its process: the only CUDA device that it sees, or `cpu`.
        visible: CUDA_VISIBLE_DEVICES of its process; empty for a processor's.
        sharers: processes of the list on the same device's memory, this one included.
    """

    label: str
    name: str
    visible: str
    sharers: int = 1


def plan_devices(
    text: str, count_cuda: Callable[[], int], visible: str | None = None
) -> list[Device]:
    """The devices of a list like `0,cuda:1`, `0,0`, `cpu,cpu` or `all`, in its order. A device that
    is named several times gets as many processes.

    Args:
        text: as the option has it.
        count_cuda: how many CUDA devices there are; asked only where one is named.
        visible: CUDA_VISIBLE_DEVICES of this process, which the indices count within; None where
            it is not set.

    Raises:
        ConfigError: something else, or a CUDA device that is not there.
    """
    names = [part.strip().lower() for part in text.split(",")]
    if names == [_ALL]:
        present = count_cuda()
        if not present:
            raise ConfigError(f"{OPTION} all: no CUDA device was found; {OPTION} cpu needs none")
        names = [f"cuda:{index}" for index in range(present)]
    if len(names) > MOST:
        raise ConfigError(f"{OPTION}: {len(names)} devices, and at most {MOST} are possible")
    indices = [_index(name) for name in names]
    wanted = [index for index in indices if index is not None]
    if wanted:
        _check_cuda(wanted, count_cuda())
    entries = None if visible is None else [entry.strip() for entry in visible.split(",")]
    sharers, before = Counter(indices), Counter[int | None]()
    devices: list[Device] = []
    for index in indices:
        place, several = before[index], sharers[index]
        before[index] += 1
        if index is None:
            devices.append(Device(f"cpu:{place}", _CPU, "", several))
        else:
            label = f"cuda:{index}.{place}" if several > 1 else f"cuda:{index}"
            shown = str(index) if entries is None else entries[index]
            devices.append(Device(label, "cuda", shown, several))
    return devices


def _index(name: str) -> int | None:
    """Of a CUDA device; None: the processor."""
    if name == _CPU:
        return None
    found = _CUDA.fullmatch(name)
    if found is None:
        what = f"{name!r} among others" if name == _ALL else repr(name)
        raise ConfigError(
            f"{OPTION}: {what} is no device; say 0,1 or cuda:0,cuda:1, or cpu,cpu, or all alone"
        )
    return int(found[1])


def _check_cuda(wanted: list[int], present: int) -> None:
    for index in wanted:
        if index >= present:
            there = ", ".join(f"cuda:{each}" for each in range(present)) or "no CUDA device"
            raise ConfigError(f"{OPTION}: there is no cuda:{index}; this machine has {there}")


def overrides_of(device: Device, settings: Settings, processes: int, cores: int) -> list[str]:
    """What a device's process is told beyond the settings of all, as `--set` has it.

    Threads that the settings leave to the worker are divided, so that together they are as many as
    the machine has processors; so is the memory that batches may be planned for, among those on one
    device. What else the settings say holds for each process.

    Args:
        device: whose process it is.
        settings: of all.
        processes: how many there are.
        cores: processors that this machine lets us use.
    """
    asked, share = settings.device, max(1, cores // processes)
    decode = asked.decode_threads or share
    # On a GPU the model takes no threads of the processor.
    model = asked.model_threads or (share if device.name == _CPU else 0)
    return [
        f"device.name={device.name}",
        f"device.decode_threads={decode}",
        f"device.model_threads={model}",
        f"device.memory_fraction={asked.memory_fraction / device.sharers}",
        # The broker's tools list members by it.
        f"kafka.client_id={settings.kafka.client_id}-{device.label.replace(':', '-')}",
    ]
