"""The source with a consumer that answers by script: commits, chunks, lost partitions."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import pytest
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
)
from aiokafka.structs import ConsumerRecord, TopicPartition

from pipeline import metrics as m
from pipeline.ledger import PartitionId
from schemas.errors import FatalError
from schemas.settings import LifecycleSettings, Settings
from tests.fakes.office import JPEG, P0, P1, Office, an_office
from workers.kafka_clients import NO_GENERATION
from workers.kafka_intake import CHUNK, NOBODY
from workers.kafka_source import Hooks, KafkaSource, _Listener
from workers.logs import get_log


@dataclass
class FakeCoordinator:
    """The part of the library that knows whether the group still has this consumer."""

    generation: int = 3


@dataclass
class FakeConsumer:
    """`fetches` holds what the next polls return; an empty poll turns the loop once."""

    fetches: deque[dict[TopicPartition, list[ConsumerRecord] | KafkaError]] = field(
        default_factory=deque
    )
    polled: list[tuple[TopicPartition, ...]] = field(default_factory=list)
    commits: list[dict[PartitionId, int]] = field(default_factory=list)
    commit_error: Exception | None = None
    sought: list[tuple[TopicPartition, int]] = field(default_factory=list)
    _coordinator: FakeCoordinator = field(default_factory=FakeCoordinator)

    async def getmany(self, *wanted: TopicPartition, timeout_ms: int, max_records: int = 1):
        assert wanted, "getmany without partitions polls all"
        self.polled.append(wanted)
        await asyncio.sleep(0)
        if wanted == (NOBODY,) or not self.fetches:
            return {}
        fetched = self.fetches.popleft()
        if isinstance(fetched, Exception):
            raise fetched
        return fetched

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append((partition, offset))

    async def commit(self, offsets: dict[PartitionId, int]) -> None:
        if self.commit_error is not None:
            raise self.commit_error
        self.commits.append({(p[0], p[1]): offset for p, offset in offsets.items()})


class Branch:
    """An office with a source in front."""

    def __init__(self, **lifecycle: int) -> None:
        self.office: Office = an_office()
        self.consumer = FakeConsumer()
        self.flushed: list[frozenset[PartitionId]] = []
        self.failures: list[FatalError] = []
        self.source = KafkaSource(
            Settings(lifecycle=LifecycleSettings(**lifecycle)), ["in"], self.office.delivery,
            self.office.books, Hooks(self.flushed.append, self.failures.append),
            self.office.metrics, get_log("test"),
        )  # fmt: skip
        self.source._consumer = self.consumer

    async def settle(self, *offsets: int) -> None:
        await self.source._intake._take(
            TopicPartition(*P0), records(*offsets), self.office.books.ledger.epoch(P0)
        )
        self.office.finish(*self.office.items)
        self.office.acknowledge()


async def a_branch(**lifecycle: int) -> Branch:
    branch = Branch(**lifecycle)
    await branch.source.assign({TopicPartition(*P0), TopicPartition(*P1)})
    return branch


def records(*offsets: int, partition: int = 0) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("in", partition, offset, 0, 0, b"cam", JPEG, None, 3, len(JPEG), ())
        for offset in offsets
    ]


async def test_watermarks_are_committed_once() -> None:
    branch = await a_branch()
    await branch.settle(4, 5)
    assert await branch.source.commit()
    assert await branch.source.commit()
    assert branch.consumer.commits == [{P0: 6}]


@pytest.mark.parametrize(
    "error", [CommitFailedError(), IllegalStateError(), KafkaConnectionError()]
)
async def test_a_commit_that_fails_is_covered_by_the_next(error: KafkaError) -> None:
    branch = await a_branch()
    await branch.settle(0)
    branch.consumer.commit_error = error
    assert not await branch.source.commit()
    assert branch.office.metrics.value(m.COMMITS, outcome="failed") == 1
    branch.consumer.commit_error = None
    assert await branch.source.commit()
    assert branch.consumer.commits == [{P0: 1}]


async def test_a_member_that_the_group_dropped_commits_nothing() -> None:
    branch = await a_branch()
    await branch.settle(0)
    branch.consumer._coordinator.generation = NO_GENERATION
    assert not await branch.source.commit()
    await branch.source.revoke({TopicPartition(*P0)})
    assert branch.consumer.commits == []
    assert branch.office.metrics.value(m.COMMITS, outcome="failed") == 2


async def test_a_group_that_may_not_commit_ends_the_worker() -> None:
    branch = await a_branch()
    await branch.settle(0)
    branch.consumer.commit_error = GroupAuthorizationFailedError("group")
    with pytest.raises(FatalError, match="commit"):
        await branch.source.commit()


async def test_a_revoke_flushes_settles_and_commits_before_it_lets_go() -> None:
    branch = await a_branch()
    await branch.source._intake._take(
        TopicPartition(*P0), records(0, 1), branch.office.books.ledger.epoch(P0)
    )
    revoking = asyncio.ensure_future(branch.source.revoke({TopicPartition(*P0)}))
    while not branch.flushed:
        await asyncio.sleep(0)
    assert branch.flushed == [{P0}]
    assert branch.source.assigned == {P1}
    branch.office.finish(*branch.office.items)
    branch.office.acknowledge()
    await revoking
    assert branch.consumer.commits == [{P0: 2}]
    assert branch.office.books.ledger.partitions == {P1}


async def test_a_revoke_that_runs_out_of_time_commits_what_is_settled() -> None:
    branch = await a_branch(revoke_timeout_ms=10)
    await branch.settle(0)
    await branch.source._intake._take(
        TopicPartition(*P0), records(1), branch.office.books.ledger.epoch(P0)
    )
    await branch.source.revoke({TopicPartition(*P0)})
    assert branch.consumer.commits == [{P0: 1}]
    branch.office.finish(*branch.office.items)
    assert branch.office.queue == [], "its next owner answers it"
    assert branch.office.conserved()


async def test_the_rest_of_a_fetch_is_not_taken_once_the_partition_has_left() -> None:
    branch = await a_branch(revoke_timeout_ms=10)
    epoch = branch.office.books.ledger.epoch(P0)
    taking = asyncio.ensure_future(
        branch.source._intake._take(TopicPartition(*P0), records(*range(3 * CHUNK)), epoch)
    )
    await asyncio.sleep(0)
    await branch.source.revoke({TopicPartition(*P0)})
    await branch.source.assign({TopicPartition(*P0)})
    await taking
    assert branch.office.metrics.total(m.RECEIVED) < 3 * CHUNK
    assert branch.office.books.ledger.incomplete() == 0, "nothing of it in the new epoch"


async def test_errors_in_the_listener_end_the_worker_instead_of_being_logged_only() -> None:
    branch = await a_branch()
    await branch.settle(0)
    branch.consumer.commit_error = ZeroDivisionError("bug")
    listener = _Listener(branch.source)
    await listener.on_partitions_revoked({TopicPartition(*P0)})
    assert "ZeroDivisionError" in str(branch.failures[0])


async def test_a_closed_intake_polls_nobody_and_goes_on_when_it_opens() -> None:
    branch = await a_branch()
    flow = branch.office.books.flow
    for _ in range(1_000):
        flow.take(0)
    polling = asyncio.ensure_future(branch.source.poll())
    while not branch.consumer.polled:
        await asyncio.sleep(0)
    assert branch.consumer.polled[-1] == (NOBODY,)
    branch.consumer.fetches.append({TopicPartition(*P1): records(3, partition=1)})
    for _ in range(1_000):
        flow.give(0)
    branch.office.delivery.progress.set()
    while not branch.office.items:
        await asyncio.sleep(0)
    assert set(branch.consumer.polled[-1]) <= {P0, P1}
    polling.cancel()
    await asyncio.wait([polling])


async def test_a_consumer_that_is_refused_for_good_ends_the_worker() -> None:
    branch = await a_branch()
    branch.consumer.fetches.append(GroupAuthorizationFailedError("group"))
    with pytest.raises(FatalError, match="read from Kafka"):
        await branch.source.poll()


async def test_a_poll_that_outlives_a_rebalance_passes_no_record_over() -> None:
    branch = await a_branch()
    branch.consumer.fetches.append({TopicPartition(*P0): records(5, 6)})
    polling = asyncio.ensure_future(branch.source._intake._poll_once(branch.consumer, [P0]))
    await asyncio.sleep(0)
    await branch.source.revoke({TopicPartition(*P0)})
    await polling
    assert branch.consumer.sought == [(TopicPartition(*P0), 5)]
    assert branch.office.metrics.total(m.RECEIVED) == 0
