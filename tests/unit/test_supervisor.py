"""The supervisor, over processes that end as told."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from pipeline.retry import Backoff
from tests.fakes.clock import VirtualClock
from workers.logs import get_log
from workers.restart import Patience
from workers.supervisor import Supervisor

SEGV, TERM, KILL = -signal.SIGSEGV, -signal.SIGTERM, -signal.SIGKILL
PATIENCE = Patience(Backoff(0.0, 0.0, lambda: 0.0), quick_s=60.0, most_quick=3)


class Child:
    """Ends with `code` after `lived_s` of virtual time."""

    def __init__(self, rig: Rig, code: int, lived_s: float) -> None:
        self.pid, self.signals = 1, list[int]()
        self._rig, self._code, self._lived_s = rig, code, lived_s

    def wait(self) -> int:
        self._rig.meanwhile()
        self._rig.clock.advance(self._lived_s)
        return self._code

    def send_signal(self, sig: int, /) -> None:
        self.signals.append(sig)


class Rig:
    def __init__(self, *codes: int, lived_s: float = 1.0) -> None:
        self.clock, self.children, self.codes = VirtualClock(), list[Child](), list(codes)
        self.lived_s = lived_s
        self.meanwhile: Callable[[], object] = lambda: None
        self.before_start: Callable[[], object] = lambda: None

    def run(self) -> int:
        return Supervisor(self._start, get_log("test"), self.clock, PATIENCE).run()

    def _start(self) -> Child:
        self.before_start()
        self.children.append(Child(self, self.codes.pop(0), self.lived_s))
        return self.children[-1]


@pytest.mark.parametrize("code", [0, 2])
def test_an_end_in_order_and_a_wrong_setting_are_final(code: int) -> None:
    rig = Rig(code)
    assert rig.run() == code
    assert len(rig.children) == 1


@pytest.mark.parametrize("death", [1, 3, SEGV, KILL, TERM])
def test_a_worker_that_dies_is_started_again(death: int) -> None:
    rig = Rig(death, death, 0)
    assert rig.run() == 0
    assert len(rig.children) == 3


def test_it_gives_up_on_a_worker_that_keeps_dying_at_once() -> None:
    rig = Rig(*[SEGV] * 10)
    assert rig.run() == 1
    assert len(rig.children) == PATIENCE.most_quick + 1


def test_deaths_after_a_long_life_do_not_add_up() -> None:
    rig = Rig(*[SEGV] * 20, 0, lived_s=PATIENCE.quick_s)
    assert rig.run() == 0
    assert len(rig.children) == 21


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (1, 1), (3, 1), (SEGV, 1), (TERM, 0)])
def test_a_signal_is_passed_on_and_no_other_worker_is_started(
    number: signal.Signals, code: int, exit_code: int
) -> None:
    rig = Rig(code)
    rig.meanwhile = lambda: signal.raise_signal(number)
    assert rig.run() == exit_code
    assert [child.signals for child in rig.children] == [[number]]


def test_a_second_signal_is_passed_on_too() -> None:
    rig = Rig(1)

    def twice() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    rig.meanwhile = twice
    assert rig.run() == 1
    assert rig.children[0].signals == [signal.SIGTERM] * 2


def test_a_signal_at_the_moment_of_a_start_reaches_the_new_worker() -> None:
    rig = Rig(0)
    rig.before_start = lambda: signal.raise_signal(signal.SIGTERM)
    assert rig.run() == 0
    assert rig.children[0].signals == [signal.SIGTERM]


def test_a_signal_between_two_workers_ends_it() -> None:
    rig = Rig(SEGV, 0)
    pauses = Patience(
        Backoff(3600.0, 3600.0, lambda: signal.raise_signal(signal.SIGTERM) or 1.0),
        quick_s=60.0,
        most_quick=3,
    )
    supervisor = Supervisor(rig._start, get_log("test"), rig.clock, pauses)
    assert supervisor.run() == 0
    assert len(rig.children) == 1


def test_the_handlers_of_before_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    Rig(0).run()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
