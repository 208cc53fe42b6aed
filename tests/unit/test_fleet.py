"""Which worker of a fleet is started next, and what the fleet ends with; on virtual time."""

from __future__ import annotations

import signal

import pytest

from pipeline.retry import Backoff
from workers.fleet import DeviceState, Fleet
from workers.restart import Patience

A, B = "cuda:0", "cuda:1"
SEGV, KILL, TERM = -signal.SIGSEGV, -signal.SIGKILL, -signal.SIGTERM
PATIENCE = Patience(Backoff(2.0, 8.0, lambda: 0.5), quick_s=60.0, most_quick=3)


def a_fleet(*devices: str, running: bool = True) -> Fleet:
    fleet = Fleet(devices or (A, B), PATIENCE, now=100.0)
    if running:
        for device in fleet.due(100.0):
            fleet.started(device, 100.0)
    return fleet


def test_all_are_due_at_once() -> None:
    fleet = a_fleet(running=False)
    assert (fleet.due(100.0), fleet.next_due_at, fleet.running) == ([A, B], 100.0, [])


def test_one_that_died_comes_back_after_its_pause_and_the_other_goes_on() -> None:
    fleet = a_fleet()
    ending = fleet.ended(A, KILL, 130.0)
    assert (ending.state, ending.lived_s, ending.pause_s) == (DeviceState.WAITING, 30.0, 1.0)
    assert (fleet.due(130.9), fleet.next_due_at, fleet.running) == ([], 131.0, [B])
    assert fleet.due(131.0) == [A]
    fleet.started(A, 131.0)
    assert (fleet.running, fleet.next_due_at, fleet.over) == ([A, B], None, False)


def test_each_device_has_its_own_row_of_deaths() -> None:
    fleet = a_fleet()
    assert fleet.ended(A, SEGV, 101.0).pause_s == 1.0
    fleet.started(A, 102.0)
    assert fleet.ended(A, SEGV, 103.0).pause_s == 2.0
    assert fleet.ended(B, SEGV, 103.0).pause_s == 1.0


def test_a_device_is_given_up_and_the_rest_goes_on() -> None:
    fleet, now = a_fleet(), 101.0
    for _ in range(PATIENCE.most_quick):
        pause_s = fleet.ended(A, SEGV, now).pause_s
        assert pause_s is not None
        now += pause_s
        fleet.started(A, now)
    ending = fleet.ended(A, SEGV, now)
    assert (ending.state, ending.pause_s, ending.deaths) == (DeviceState.GIVEN_UP, None, 4)
    assert (fleet.state(A), fleet.running, fleet.over) == (DeviceState.GIVEN_UP, [B], False)
    fleet.stop()
    fleet.ended(B, 0, now)
    assert (fleet.over, fleet.exit_code) == (True, 1)


def test_a_wrong_setting_stops_all_instead_of_starting_for_ever() -> None:
    fleet = a_fleet()
    fleet.ended(B, KILL, 101.0)
    assert fleet.ended(A, 2, 101.0).state is DeviceState.ENDED
    assert (fleet.stopping, fleet.due(1e9), fleet.next_due_at) == (True, [], None)
    assert (fleet.over, fleet.exit_code) == (True, 2)


def test_one_that_was_told_to_end_stays_away() -> None:
    fleet = a_fleet()
    assert fleet.ended(A, 0, 101.0).state is DeviceState.ENDED
    assert (fleet.stopping, fleet.due(1e9), fleet.over) == (False, [], False)
    fleet.ended(B, 0, 102.0)
    assert (fleet.over, fleet.exit_code) == (True, 0)


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ((0, 0), 0), ((0, TERM), 0), ((-signal.SIGINT, TERM), 0), ((0, 3), 3), ((3, 1), 1),
        ((0, SEGV), 1), ((KILL, 3), 1), ((1, 2), 2), ((0, 77), 1),
    ],
)  # fmt: skip
def test_it_ends_with_the_worst_of_their_codes(codes: tuple[int, int], worst: int) -> None:
    fleet = a_fleet()
    fleet.stop()
    for device, code in zip((A, B), codes, strict=True):
        fleet.ended(device, code, 110.0)
    assert (fleet.over, fleet.exit_code) == (True, worst)


def test_a_stop_between_two_processes_starts_no_more() -> None:
    fleet = a_fleet(A)
    fleet.ended(A, KILL, 101.0)
    fleet.stop()
    assert (fleet.over, fleet.exit_code) == (True, 0)


def test_what_cannot_be_is_refused() -> None:
    fleet = a_fleet()
    with pytest.raises(RuntimeError, match="cannot start"):
        fleet.started(A, 100.0)
    fleet.ended(A, 0, 101.0)
    with pytest.raises(RuntimeError, match="no process"):
        fleet.ended(A, 0, 101.0)
