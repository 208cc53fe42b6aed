"""The health of a fleet, from what its parent knows and its workers answer."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from workers.fleet import DeviceState
from workers.fleet_health import SILENCE_S, health_of
from workers.fleet_probe import Page
from workers.health import Health
from workers.roster import Entry, Roster

A, B = "cuda:0", "cuda:1"
GOOD = Page(200, b'{"state": "running", "assigned_partitions": 2}')
BAD = Page(503, b'{"state": "running", "stalled": true}')
NOW = 100.0
UP = Entry(DeviceState.RUNNING, 1, pid=7, port=1, answered=True)
HANGS = replace(UP, silent_since=NOW - SILENCE_S)
SLOW = replace(UP, silent_since=NOW - SILENCE_S + 0.1)
STARTING = Entry(DeviceState.RUNNING, 1, pid=7, port=1, silent_since=0.0)
WAITING = Entry(DeviceState.WAITING, 3)
GIVEN_UP = Entry(DeviceState.GIVEN_UP, 11)
ENDED = Entry(DeviceState.ENDED, 1)


def of(a: Entry, b: Entry, healthy: dict[str, Page], ready: dict[str, Page]) -> Health:
    return health_of({A: a, B: b}, healthy, ready, NOW)


@pytest.mark.parametrize(
    ("a", "b", "healthy", "ready", "expected"),
    [
        (UP, UP, {A: GOOD, B: GOOD}, {A: GOOD, B: GOOD}, (True, True)),
        # More devices than partitions, or a worker that has just started.
        (UP, STARTING, {A: GOOD}, {A: GOOD, B: BAD}, (True, True)),
        (STARTING, STARTING, {}, {}, (True, False)),
        (UP, WAITING, {A: GOOD}, {A: GOOD}, (True, True)),
        (UP, GIVEN_UP, {A: GOOD}, {A: GOOD}, (True, True)),
        (WAITING, WAITING, {}, {}, (True, False)),
        (GIVEN_UP, GIVEN_UP, {}, {}, (False, False)),
        # One that asks to be ended, or that answered once and is silent now.
        (UP, UP, {A: GOOD, B: BAD}, {A: GOOD, B: BAD}, (False, True)),
        (UP, HANGS, {A: GOOD}, {A: GOOD}, (False, True)),
        (UP, SLOW, {A: GOOD}, {A: GOOD}, (True, True)),
        (ENDED, UP, {B: GOOD}, {B: BAD}, (True, False)),
    ],
)
def test_health(
    a: Entry,
    b: Entry,
    healthy: dict[str, Page],
    ready: dict[str, Page],
    expected: tuple[bool, bool],
) -> None:
    health = of(a, b, healthy, ready)
    assert (health.healthy, health.ready) == expected


def test_details_name_every_device() -> None:
    health = of(UP, WAITING, {A: GOOD}, {A: GOOD})
    assert health.details == {
        "running": 1,
        "devices": {
            A: {
                "process": "running", "restarts": 0, "healthy": True, "ready": True, "pid": 7,
                "state": "running", "assigned_partitions": 2,
            },
            B: {"process": "waiting", "restarts": 2, "healthy": True, "ready": False},
        },
    }  # fmt: skip
    assert msgspec.json.encode(dict(health.details))


def test_a_worker_that_says_nothing_readable_is_judged_by_its_status() -> None:
    health = of(UP, ENDED, {A: Page(200, b"<html>")}, {})
    assert (health.healthy, health.ready) == (True, False)


def test_an_answer_of_a_process_that_is_gone_says_nothing_of_the_next() -> None:
    roster = Roster([A])
    roster.started(A, 1, 1_001)
    asked = roster.entries()[A]
    roster.left(A, DeviceState.WAITING)
    roster.started(A, 2, 1_002)
    roster.heard(A, asked)
    assert not roster.entries()[A].answered
    roster.heard(A, roster.entries()[A])
    assert roster.entries()[A].answered


def test_silence_counts_from_the_first_question_in_vain_to_the_next_answer() -> None:
    roster = Roster([A])
    roster.started(A, 1, 1_001)
    roster.missed(A, roster.entries()[A], 5.0)
    roster.missed(A, roster.entries()[A], 7.0)
    assert roster.entries()[A].silent_since == 5.0
    roster.heard(A, roster.entries()[A])
    assert roster.entries()[A].silent_since is None
    roster.missed(A, roster.entries()[A], 9.0)
    assert (roster.entries()[A].silent_since, roster.entries()[A].answered) == (9.0, True)
