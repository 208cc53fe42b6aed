"""Commits by time and by count, and none when there is nothing new."""

from __future__ import annotations

import asyncio

from schemas.settings import DeliverySettings
from tests.fakes.office import P0, Office, a_record, an_office
from workers.committer import commit_regularly

HOUR_MS = 3_600_000


class Broker:
    """Counts commits; refuses the first few."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.commits = 0
        self.came = asyncio.Event()

    async def commit(self) -> bool:
        self.commits += 1
        self.came.set()
        return self.commits > self.refusals

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(180):
            while self.commits < count:
                self.came.clear()
                await self.came.wait()


def settle(office: Office, offset: int) -> None:
    office.delivery.take(P0, [a_record(offset)])
    office.finish(*office.items)
    office.acknowledge()


async def run_with(
    settings: DeliverySettings, office: Office, broker: Broker, commits: int
) -> None:
    task = asyncio.ensure_future(commit_regularly(settings, office.delivery, broker.commit))
    try:
        await broker.wait(commits)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_full_count_commits_before_the_interval_ends() -> None:
    office, broker = an_office(), Broker()
    settle(office, 0)
    settle(office, 1)
    settings = DeliverySettings(commit_interval_ms=HOUR_MS, commit_every=2)
    await run_with(settings, office, broker, commits=1)
    assert broker.commits == 1


async def test_the_interval_commits_what_there_is() -> None:
    office, broker = an_office(), Broker()
    settle(office, 0)
    settings = DeliverySettings(commit_interval_ms=1, commit_every=1_000)
    await run_with(settings, office, broker, commits=1)


async def test_a_refused_commit_is_tried_again_at_the_next_turn() -> None:
    office, broker = an_office(), Broker(refusals=2)
    settle(office, 0)
    settings = DeliverySettings(commit_interval_ms=1, commit_every=1_000)
    await run_with(settings, office, broker, commits=3)


async def test_nothing_new_commits_nothing() -> None:
    office, broker = an_office(), Broker()
    settings = DeliverySettings(commit_interval_ms=1, commit_every=1)
    task = asyncio.ensure_future(commit_regularly(settings, office.delivery, broker.commit))
    for _ in range(50):
        await asyncio.sleep(0)
    assert broker.commits == 0
    settle(office, 0)
    await broker.wait(1)
    task.cancel()
    await asyncio.wait([task])
