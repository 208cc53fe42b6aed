"""What a worker's process makes of its first, second and third signal."""

from __future__ import annotations

import atexit
import queue
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from workers.exits import EXIT_FAILED
from workers.fleet import SIGNALS
from workers.logs import get_log
from workers.stop_signals import StopSignals

DEADLINE_S = 60.0


@dataclass
class Held:
    """A worker that holds so much."""

    unsettled: int = 0
    in_group: bool = True


@dataclass
class Process:
    """Its exits are written down, and its drains counted."""

    worker: Held = field(default_factory=Held)
    codes: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue[int])
    drains: int = 0

    def __post_init__(self) -> None:
        self.signals = StopSignals(get_log("frameloom.worker"), self.codes.put)
        self.signals.install()

    def attach(self) -> None:
        self.signals.attach(self.worker, self.drain)

    def drain(self) -> None:
        self.drains += 1

    def ended(self) -> int:
        return self.codes.get(timeout=DEADLINE_S)


@pytest.fixture(autouse=True)
def own_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own signals are put back, and nothing is done at their end."""
    monkeypatch.setattr(atexit, "register", id)
    handlers = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, handlers, strict=True):
        signal.signal(number, handler)


def hurry(process: Process) -> None:
    for number in SIGNALS:
        signal.raise_signal(number)


def test_the_first_drains_and_nothing_ends() -> None:
    process = Process()
    process.attach()
    signal.raise_signal(signal.SIGINT)
    process.signals.ended()
    assert (process.drains, process.codes.empty()) == (1, True)


def test_one_that_came_before_the_worker_drains_it() -> None:
    process = Process()
    signal.raise_signal(signal.SIGTERM)
    process.attach()
    assert process.drains == 1


def test_a_second_ends_at_once_and_says_what_is_uncommitted() -> None:
    process = Process(Held(unsettled=7))
    process.attach()
    with capture_logs() as lines:
        hurry(process)
        assert process.ended() == EXIT_FAILED
    (line,) = lines
    assert (line["event"], line["uncommitted"], line["left_group"]) == ("hurried", 7, False)


@pytest.mark.parametrize("attached", [False, True])
def test_before_the_group_is_joined_a_second_ends_at_once(*, attached: bool) -> None:
    process = Process(Held(in_group=False))
    if attached:
        process.attach()
    with capture_logs() as lines:
        hurry(process)
        assert process.ended() == EXIT_FAILED
    assert [line["event"] for line in lines] == ["hurried"]


def test_with_nothing_inside_the_worker_may_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.stop_signals.LEAVE_S", DEADLINE_S)
    process = Process()
    process.attach()
    with capture_logs() as lines:
        hurry(process)
        assert process.codes.empty()
        process.worker.in_group = False
        process.signals.ended()
        assert process.ended() == EXIT_FAILED
    (line,) = lines
    assert (line["event"], line["uncommitted"], line["left_group"]) == ("hurried", 0, True)


def test_a_worker_that_does_not_leave_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.stop_signals.LEAVE_S", 0.0)
    process = Process()
    process.attach()
    with capture_logs() as lines:
        hurry(process)
        assert process.ended() == EXIT_FAILED
    assert [line["left_group"] for line in lines] == [False]


def test_a_third_ends_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.stop_signals.LEAVE_S", DEADLINE_S)
    process = Process()
    process.attach()
    with capture_logs() as lines:
        hurry(process)
        signal.raise_signal(signal.SIGTERM)
        assert process.ended() == EXIT_FAILED
        assert not lines
        process.signals.ended()
