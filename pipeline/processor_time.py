"""Processor time of a model's run on a CPU: what calibration measures, without what the machine's
other work adds to the time on the clock.

A model computes on the thread that calls it and on threads that its library keeps, which Python
knows nothing of. So it is the process's time less that of all other threads that Python started
(decoding, post-processing, the event loop).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Running(Protocol):
    """A run that is being measured."""

    def seconds(self) -> float:
        """Processor seconds since it began, over the model's threads, ≥ 0. On its thread."""
        ...


class ModelMeter(Protocol):
    """Measures runs of a model."""

    def begin(self) -> Running | None:
        """Now, on the thread that is about to run the model; None where it cannot be told."""
        ...


class NoMeter:
    """Cannot tell: for decoders whose own threads would be counted, too."""

    def begin(self) -> Running | None:
        return None


class ProcessorMeter:
    """Reads the process's accounts. On Linux; elsewhere it cannot tell.

    Args:
        threads: that the model has; 0: one for each core that the process may use.
    """

    def __init__(self, threads: int = 0) -> None:
        self._threads = threads or len(_cores())

    def begin(self) -> Running | None:
        return _Reading(self._threads, time.process_time(), _others()) if _KNOWN else None


@dataclass(frozen=True, slots=True)
class _Reading:
    threads: int
    process_s: float
    others: Mapping[int, float]

    def seconds(self) -> float:
        others = _others()
        # A thread that has ended meanwhile is not subtracted: it had little time left to use.
        spent_s = time.process_time() - self.process_s
        spent_s -= sum(now_s - self.others.get(thread, 0.0) for thread, now_s in others.items())
        return max(0.0, spent_s) / self.threads


_KNOWN = sys.platform == "linux"


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}


def _others() -> dict[int, float]:
    """Thread's number in the system → its processor seconds, for all that Python knows but the
    calling one."""
    own = threading.get_native_id()
    found: dict[int, float] = {}
    for thread in threading.enumerate():
        number = thread.native_id
        if number is None or number == own:
            continue
        try:
            found[number] = time.clock_gettime(_clock_of(number))
        except OSError:
            continue  # it has ended; asking the kernel by number is safe then
    return found


def _clock_of(thread: int) -> int:
    """The kernel's clock of a thread's processor time, as `pthread_getcpuclockid` makes it; that
    one may not be asked about a thread that has ended."""
    return (~thread << 3) | 6
