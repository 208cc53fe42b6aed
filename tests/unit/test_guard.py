"""The guard: journal around native calls, and their deadline, on a virtual clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.guard import LATE_S, HungCall, NativeGuard
from pipeline.journal import Journal, Stage, read_journal
from tests.builders import an_item
from tests.fakes.clock import VirtualClock

TIMEOUT_S = 10.0


def until(happened: Callable[[], bool]) -> None:
    """Wait for another thread, with a deadline."""
    deadline_at = time.monotonic() + 180
    while not happened():
        assert time.monotonic() < deadline_at
        time.sleep(0.001)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.journal = Journal(folder / "1.journal")
        self.hung: list[HungCall] = []
        self.armed: list[float] = []
        self.guard = NativeGuard(
            self.journal,
            TIMEOUT_S,
            hung=self.hung.append,
            keep_alive=self.armed.append,
            clock=self.clock,
        )
        self.look_at = self.guard.look(self.clock())

    def sleep(self, extra_s: float = 0.0) -> None:
        """Until the guard meant to look, or later."""
        self.clock.advance_to(self.look_at + extra_s)
        self.look_at = self.guard.look(self.clock())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.guard.stop()


def test_items_stand_in_the_journal_while_their_call_runs(rig: Rig) -> None:
    with rig.guard.inside(Stage.DECODE, [an_item(seq=7)]):
        (entry,) = read_journal(rig.journal.path)
        assert (entry.stage, entry.records[0].offset) == (Stage.DECODE, 7)
    assert read_journal(rig.journal.path) == []


def test_a_suspect_is_inside_alone_and_keeps_others_waiting(rig: Rig) -> None:
    let_go, inside, seen = threading.Event(), threading.Event(), list[str]()

    def ordinary(stage: Stage, name: str) -> threading.Thread:
        def run() -> None:
            with rig.guard.inside(stage, [an_item()]):
                seen.append(name)
                inside.set()
                let_go.wait(180)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def suspect() -> None:
        with rig.guard.inside(Stage.SEGMENT, [an_item(solo=True)]):
            seen.append("suspect")
            assert [entry.stage for entry in read_journal(rig.journal.path)] == [Stage.SEGMENT]

    first = ordinary(Stage.DECODE, "first")
    assert inside.wait(180)
    alone = threading.Thread(target=suspect)
    alone.start()
    until(lambda: rig.guard.door.waiting == 1)
    late = ordinary(Stage.INFER, "late")
    assert seen == ["first"]
    let_go.set()
    for thread in (first, alone, late):
        thread.join(180)
    assert seen == ["first", "suspect", "late"]


def test_a_call_that_raises_has_left(rig: Rig) -> None:
    with pytest.raises(ZeroDivisionError), rig.guard.inside(Stage.INFER, [an_item()]):
        raise ZeroDivisionError
    assert read_journal(rig.journal.path) == []
    rig.sleep()
    rig.sleep()
    assert rig.hung == []


def test_a_check_on_harmless_input_blames_nobody_but_is_watched(rig: Rig) -> None:
    with rig.guard.inside(Stage.INFER, []):
        assert read_journal(rig.journal.path) == []
        rig.sleep()
        assert [(call.stage, call.records) for call in rig.hung] == [(Stage.INFER, 0)]


@pytest.mark.parametrize("began_s", [0.0, 0.001, 5.0, 9.999])
def test_a_call_is_reported_at_its_deadline_whenever_it_began(rig: Rig, began_s: float) -> None:
    start = rig.clock()
    rig.clock.advance(began_s)
    with rig.guard.inside(Stage.DECODE, [an_item(), an_item()]):
        while not rig.hung:
            assert rig.clock() - start < 2 * TIMEOUT_S + 1
            rig.sleep()
        assert rig.clock() - start == pytest.approx(began_s + TIMEOUT_S, abs=1e-6)
        rig.sleep()
    (call,) = rig.hung
    assert (call.stage, call.records) == (Stage.DECODE, 2)
    assert call.seconds == pytest.approx(TIMEOUT_S)


def test_the_call_that_hangs_is_marked_and_no_other(rig: Rig) -> None:
    with rig.guard.inside(Stage.DECODE, [an_item(seq=1)]):
        rig.clock.advance(1.0)
        with rig.guard.inside(Stage.INFER, [an_item(seq=2)]):
            rig.sleep()
            marks = {entry.stage: entry.hung for entry in read_journal(rig.journal.path)}
    assert marks == {Stage.DECODE: True, Stage.INFER: False}


def test_many_short_calls_are_never_reported(rig: Rig) -> None:
    for _ in range(100):
        with rig.guard.inside(Stage.DECODE, [an_item()]):
            rig.clock.advance(TIMEOUT_S * 0.9)
            if rig.clock() >= rig.look_at:
                rig.look_at = rig.guard.look(rig.clock())
    assert rig.hung == []


def test_a_process_that_was_stopped_blames_nobody_for_the_time(rig: Rig) -> None:
    """SIGSTOP for an hour, then SIGCONT: the call has only what it used itself."""
    with rig.guard.inside(Stage.INFER, [an_item()]):
        rig.sleep(extra_s=3600.0)
        assert rig.hung == []
        rig.sleep()
        assert len(rig.hung) == 1


def test_a_little_lateness_is_no_excuse(rig: Rig) -> None:
    with rig.guard.inside(Stage.INFER, [an_item()]):
        rig.sleep(extra_s=LATE_S / 2)
        assert len(rig.hung) == 1


def test_the_other_watch_is_armed_beyond_the_next_look(rig: Rig) -> None:
    for _ in range(3):
        assert rig.armed[-1] == pytest.approx(rig.look_at - rig.clock() + TIMEOUT_S)
        rig.sleep()


def test_on_its_thread_it_reports_a_call_that_does_not_return(tmp_path: Path) -> None:
    reported = threading.Event()
    journal = Journal(tmp_path / "2.journal")
    guard = NativeGuard(journal, 0.05, hung=lambda call: reported.set())
    guard.start()
    with guard.inside(Stage.POST, [an_item()]):
        assert reported.wait(180)
    guard.stop()
    guard.stop()
