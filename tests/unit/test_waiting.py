"""How often a worker without partitions says so."""

from __future__ import annotations

import itertools

from workers.waiting import FIRST_S, LONGEST_S, Waiting


def said(seconds: int) -> list[float]:
    waiting = Waiting(100.0)
    looks = (waiting.look(100.0 + s, assigned=False) for s in range(seconds + 1))
    return [waited for waited in looks if waited is not None]


def test_it_is_said_after_a_while_and_each_time_that_this_has_doubled() -> None:
    assert said(int(8 * FIRST_S)) == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]


def test_the_pauses_have_a_longest() -> None:
    times = said(5 * int(LONGEST_S))
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(pauses) == LONGEST_S == pauses[-1]


def test_partitions_begin_it_anew() -> None:
    waiting = Waiting(0.0)
    assert waiting.look(FIRST_S, assigned=False) == FIRST_S
    assert waiting.look(1e4, assigned=True) is None
    assert waiting.look(1e4 + FIRST_S - 1, assigned=False) is None
    assert waiting.look(1e4 + FIRST_S, assigned=False) == FIRST_S
