"""The scenarios' worker: the real one, in a process of its own, on the scenarios' lane.

Such a process is forked from a server that has the heavy imports behind it: importing torch takes
seconds of a core, and a drill starts some eighty workers. SIGUSR1 puts its wall clock ten minutes
forward, SIGUSR2 ten minutes back.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from schemas.settings import Settings, load_settings
from tests.scenario.lane import scenario_lane
from workers.detect import Loaded, run_worker

STEP_NS = 600 * 10**9
PR_SET_PDEATHSIG = 1

_FORKS = multiprocessing.get_context("forkserver")


class ForkedProcess:
    """One worker, with what the tests use of `subprocess.Popen`."""

    def __init__(self, config: Path, pace: Path, log: Path) -> None:
        _FORKS.set_forkserver_preload([__name__])
        self._process = _FORKS.Process(target=_work, args=(config, pace, log))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class SteppedClock:
    """The process's wall clock, for every module that asks `time` for it."""

    def __init__(self) -> None:
        self._true_ns = time.time_ns
        self._offset_ns = 0

    def install(self) -> None:
        """Take the place of `time.time` and `time.time_ns`."""
        time.time_ns = self.time_ns
        time.time = lambda: self.time_ns() / 1e9
        signal.signal(signal.SIGUSR1, lambda *_: self._step(STEP_NS))
        signal.signal(signal.SIGUSR2, lambda *_: self._step(-STEP_NS))

    def time_ns(self) -> int:
        return self._true_ns() + self._offset_ns

    def _step(self, by_ns: int) -> None:
        self._offset_ns += by_ns
        minutes = round(self._offset_ns / 60e9)
        sys.stderr.write(f'{{"event": "clock_stepped", "minutes": {minutes}}}\n')


def _work(config: Path, pace: Path, log: Path) -> None:
    """Runs in the new process."""
    # Its server ends with the tests, however they end.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The server ignores Ctrl-C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    SteppedClock().install()
    sys.exit(run_worker(load_settings(config), lambda settings: _load(settings, pace)))


def _load(settings: Settings, pace: Path) -> Loaded:
    lane = scenario_lane(pace)
    return Loaded({route.name: lane for route in settings.routes}, "cpu")
