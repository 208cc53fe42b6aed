"""What is held of a record that was inside when a worker died, and when it is convicted."""

from __future__ import annotations

import pytest

from pipeline.item import Coordinates
from pipeline.suspect import Death, Suspect, after_death
from schemas.errors import Reason

AT = Coordinates("frames", 1, 7)
CRASH, HANG, KILLED = Death.CRASH, Death.HANG, Death.KILLED


def after(*deaths: Death) -> Suspect:
    suspect: Suspect | None = None
    for now_us, death in enumerate(deaths):
        suspect = after_death(suspect, AT, "decode", death, now_us)
    assert suspect is not None
    return suspect


@pytest.mark.parametrize("deaths", [(CRASH,), (HANG,), (KILLED,), (KILLED, KILLED)])
def test_it_may_try_again(deaths: tuple[Death, ...]) -> None:
    assert after(*deaths).verdict() is None


@pytest.mark.parametrize(
    ("deaths", "reason"),
    [
        ((CRASH, CRASH), Reason.CRASH),
        ((HANG, HANG), Reason.TIMEOUT),
        ((CRASH, HANG), Reason.TIMEOUT),
        ((HANG, CRASH), Reason.CRASH),
        ((KILLED, KILLED, KILLED), Reason.CRASH),
        ((KILLED, CRASH, KILLED), Reason.CRASH),
        ((KILLED, CRASH, HANG), Reason.TIMEOUT),
    ],
)
def test_it_is_convicted(deaths: tuple[Death, ...], reason: Reason) -> None:
    suspect = after(*deaths)
    verdict = suspect.verdict()
    assert verdict is not None
    assert (verdict.code, verdict.stage) == (reason, "decode")
    assert f"{len(deaths)} times" in verdict.detail


def test_the_latest_death_counts() -> None:
    suspect = after_death(after(CRASH), AT, "infer", HANG, 9)
    assert (suspect.stage, suspect.death, suspect.noted_us, suspect.deaths) == ("infer", HANG, 9, 2)
