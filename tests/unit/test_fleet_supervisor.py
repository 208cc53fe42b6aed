"""The supervisor of a fleet, over processes that end as told."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable

import pytest

from pipeline.retry import Backoff
from tests.fakes.clock import VirtualClock
from workers.fleet import DeviceState
from workers.fleet_supervisor import FleetSupervisor, Started
from workers.logs import get_log
from workers.restart import Patience
from workers.roster import Roster

A, B = "cpu:0", "cpu:1"
TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL
AT_ONCE = Patience(Backoff(0.0, 0.0, lambda: 0.0), quick_s=60.0, most_quick=3)


class Child:
    """Ends with the next code that it is given."""

    def __init__(self, pid: int, *codes: int) -> None:
        self.pid, self.signals = pid, list[int]()
        self.codes = queue.SimpleQueue[int]()
        self.on_signal: Callable[[int], object] = lambda number: self.codes.put(0)
        for code in codes:
            self.codes.put(code)

    def wait(self) -> int:
        return self.codes.get(timeout=180)

    def send_signal(self, sig: int, /) -> None:
        self.signals.append(sig)
        self.on_signal(sig)


class Rig:
    """Starts children that end with the codes of their device, and then live until a signal."""

    def __init__(self, codes: dict[str, list[int]]) -> None:
        self.codes, self.children = codes, list[tuple[str, Child]]()
        self.roster = Roster(codes)
        self.started: Callable[[Child], object] = lambda child: None

    def run(self) -> int:
        supervisor = FleetSupervisor(
            self._start, self.roster, get_log("test"), VirtualClock(), AT_ONCE
        )
        return supervisor.run()

    def of(self, device: str) -> list[Child]:
        return [child for name, child in self.children if name == device]

    def _start(self, device: str) -> Started:
        child = Child(len(self.children) + 1, *self.codes[device][:1])
        self.codes[device] = self.codes[device][1:]
        self.children.append((device, child))
        self.started(child)
        return Started(child, 40_000 + child.pid)


def test_one_process_per_device_until_all_have_ended() -> None:
    rig = Rig({A: [0], B: [0]})
    assert rig.run() == 0
    assert [device for device, _ in rig.children] == [A, B]
    assert {entry.state for entry in rig.roster.entries().values()} == {DeviceState.ENDED}


def test_one_that_dies_is_started_again_and_the_other_is_left_alone() -> None:
    rig = Rig({A: [-KILL, -KILL, 0], B: [0]})
    assert rig.run() == 0
    assert (len(rig.of(A)), len(rig.of(B))) == (3, 1)
    assert rig.roster.entries()[A].starts == 3


def test_the_roster_says_who_runs() -> None:
    rig = Rig({A: [], B: []})

    def look(child: Child) -> None:
        if child.pid == 2:
            seen = rig.roster.entries()[A]
            assert (seen.state, seen.pid, seen.port) == (DeviceState.RUNNING, 1, 40_001)
            signal.raise_signal(TERM)

    rig.started = look
    assert rig.run() == 0


def test_a_wrong_setting_ends_the_others_in_order() -> None:
    rig = Rig({A: [], B: [2]})
    assert rig.run() == 2
    assert (rig.of(A)[0].signals, len(rig.children)) == ([TERM], 2)


@pytest.mark.parametrize("number", [TERM, INT])
def test_a_signal_reaches_every_worker(number: signal.Signals) -> None:
    rig = Rig({A: [], B: []})
    rig.started = lambda child: child.pid == 2 and signal.raise_signal(number)
    assert rig.run() == 0
    assert [child.signals for _, child in rig.children] == [[number], [number]]


def test_a_second_signal_hurries_and_a_third_kills() -> None:
    rig = Rig({A: []})

    def stubborn(number: int) -> None:
        if number == KILL:
            rig.of(A)[0].codes.put(-KILL)
        else:
            signal.raise_signal(TERM)

    def begun(child: Child) -> None:
        child.on_signal = stubborn
        signal.raise_signal(INT)

    rig.started = begun
    assert rig.run() == 1
    assert rig.of(A)[0].signals == [INT, TERM, KILL]


def test_a_start_that_fails_is_a_death() -> None:
    rig, tried = Rig({A: []}), list[str]()

    def full(device: str) -> Started:
        tried.append(device)
        raise OSError(11, "no more processes")

    supervisor = FleetSupervisor(full, rig.roster, get_log("test"), VirtualClock(), AT_ONCE)
    assert supervisor.run() == 1
    assert len(tried) == AT_ONCE.most_quick + 1
    assert rig.roster.entries()[A].state is DeviceState.GIVEN_UP


def test_the_handlers_of_before_come_back() -> None:
    before = signal.getsignal(TERM), signal.getsignal(INT)
    Rig({A: [0]}).run()
    assert (signal.getsignal(TERM), signal.getsignal(INT)) == before
