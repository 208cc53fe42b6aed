"""The part of a round that a bench measures: between absolute counts, and never for ever."""

from __future__ import annotations

import asyncio

import pytest

from bench.contender import Contender, ContenderError, Order, ShortRoundError
from bench.worker_round import Span, span_of
from pipeline import metrics as m

FRAMES, EDGE = 64, 8
ORDER = Order(
    bootstrap="b", input="i", output="o", dead_letter="d", group="g", frames=FRAMES, edge=EDGE
)
ANSWERS_NOTHING = """
import sys
from bench.contender import Spent, serve

async def side(order):
    return Spent(frames=0, cpu_s=0.0, wall_s=0.0)

serve(lambda: side)
"""


def answered(metrics: m.Metrics, count: int) -> None:
    metrics.add(m.ANSWERED, count, "default", "ok")


async def measured(*counts: int) -> int:
    """Frames of a span whose worker answers so many at a time, one lot for each look."""
    metrics, ended = m.Metrics(), 0
    running: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def enough() -> None:
        nonlocal ended
        ended += 1

    answered(metrics, counts[0])
    span = Span(after=EDGE, frames=FRAMES - 2 * EDGE, enough=enough)
    looking = asyncio.ensure_future(span_of(running, metrics, span))
    for count in counts[1:]:
        await asyncio.sleep(0)
        answered(metrics, count)
    async with asyncio.timeout(10):
        spent = await looking
    assert ended == 1
    return spent.frames


async def test_a_span_ends_at_an_absolute_count_however_late_it_began() -> None:
    assert await measured(40, 24) == 24, "40 + 48 frames will never be answered"


async def test_a_span_that_was_answered_before_the_first_look_is_empty() -> None:
    assert await measured(60) == 0
    assert await measured(FRAMES) == 0


async def test_a_span_begins_at_the_edge() -> None:
    assert await measured(EDGE, 30, FRAMES - EDGE - 30) == FRAMES - EDGE


async def test_a_worker_that_ends_ends_the_span() -> None:
    running: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    running.set_result(1)
    with pytest.raises(ContenderError, match="ended with 1"):
        await span_of(running, m.Metrics(), Span(after=1, frames=1))


async def test_an_empty_span_says_what_to_raise() -> None:
    async with Contender("bare", ["-c", ANSWERS_NOTHING]) as contender:
        with pytest.raises(ShortRoundError, match=r"bare: .*raise --frames"):
            await contender.round(ORDER)
