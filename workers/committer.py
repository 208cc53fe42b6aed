"""The commit task: offsets to Kafka by time and by count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from schemas.settings import DeliverySettings
from workers.delivery import Delivery

COUNT_LOOK_S = 0.05
"""The count is looked at no more often than this, however fast answers settle."""


async def commit_regularly(
    settings: DeliverySettings, delivery: Delivery, commit: Callable[[], Awaitable[bool]]
) -> None:
    """Commit every `commit_interval_ms`, and earlier once `commit_every` records settled. Runs
    until cancelled; does nothing while nothing settles."""
    interval_s = settings.commit_interval_ms / 1e3
    committed = 0
    while True:
        await _wait(delivery, committed + settings.commit_every, interval_s)
        if delivery.settled > committed:
            settled = delivery.settled
            if await commit():
                committed = settled


async def _wait(delivery: Delivery, count: int, interval_s: float) -> None:
    try:
        async with asyncio.timeout(interval_s):
            while delivery.settled < count:
                delivery.progress.clear()
                await delivery.progress.wait()
                await asyncio.sleep(min(COUNT_LOOK_S, interval_s))
    except TimeoutError:
        return
