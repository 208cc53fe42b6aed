"""The three ways to be stuck, on a clock that the test moves."""

from __future__ import annotations

import pytest

from schemas.errors import FatalError
from tests.fakes.clock import VirtualClock
from workers.watchdog import LOOP_STALL_S, Watchdog

STALL_S = 60.0


class Work:
    """What a watchdog looks at."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.in_flight = 0
        self.last_progress_at = self.clock()
        self.is_behind = False
        self.watchdog = Watchdog(
            STALL_S,
            in_flight=lambda: self.in_flight,
            last_progress_at=lambda: self.last_progress_at,
            behind=self.behind,
            clock=self.clock,
        )

    async def behind(self) -> bool:
        return self.is_behind

    def progress(self) -> None:
        self.last_progress_at = self.clock()


def test_a_loop_that_does_not_turn_is_noticed() -> None:
    work = Work()
    assert work.watchdog.is_beating
    work.clock.advance(LOOP_STALL_S)
    assert not work.watchdog.is_beating


async def test_work_that_does_not_settle_ends_the_process() -> None:
    work = Work()
    work.in_flight = 3
    work.clock.advance(STALL_S)
    assert not work.watchdog.is_stalled
    work.clock.advance(0.1)
    assert work.watchdog.is_stalled
    with pytest.raises(FatalError, match="3 records are in flight"):
        await work.watchdog.beat()
    assert work.watchdog.is_beating


def test_an_idle_worker_is_not_stalled() -> None:
    work = Work()
    work.clock.advance(10 * STALL_S)
    assert not work.watchdog.is_stalled
    work.in_flight = 1
    work.progress()
    assert not work.watchdog.is_stalled


async def test_a_consumer_that_gets_nothing_of_a_growing_log_ends_the_process() -> None:
    work = Work()
    work.is_behind = True
    work.watchdog.judge_log(behind=True)
    work.clock.advance(STALL_S + 1)
    with pytest.raises(FatalError, match="stuck"):
        await work.watchdog.watch_log()


def test_whatever_moves_restarts_the_patience_with_the_log() -> None:
    work = Work()
    for moved in (work.progress, lambda: work.watchdog.judge_log(behind=False)):
        work.clock.advance(STALL_S)
        moved()
        work.clock.advance(STALL_S)
        work.watchdog.judge_log(behind=True)
    work.in_flight = 1
    work.clock.advance(STALL_S + 1)
    work.watchdog.judge_log(behind=True)
