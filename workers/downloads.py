"""Downloads: the claims under way, beside the way that other records take.

A record with a claim holds its credits from its receipt, its bytes' included, and waits here until
they have been fetched; its stream's order is the sequencer's business. A partition from which many
wait is not read for the time being, so that one slow store cannot use up the credits of all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from pipeline import metrics as m
from pipeline.claim_rules import fault
from pipeline.ledger import PartitionId
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from schemas.errors import FatalError, PoisonError, Reason
from schemas.frame import Claim
from workers.claim_turns import BytesGate, Turns
from workers.logs import Log
from workers.tickets import Ticket

Place = tuple[str, int, int, int]
"""Topic, partition, epoch, offset."""


class Fetcher(Protocol):
    """What downloads are made with. `workers.claim_fetch.ClaimFetcher` is the real one."""

    async def fetch(
        self, claim: Claim, turn: Callable[[], AbstractAsyncContextManager[None]]
    ) -> memoryview: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be under way.

    Attributes:
        concurrency: downloads at once.
        max_bytes: bytes that downloads, under way and done, may hold until they are settled; at
            least the longest claim.
        max_waiting: claims of one partition before it counts as full.
    """

    concurrency: int
    max_bytes: int
    max_waiting: int


@dataclass(slots=True, eq=False)
class _Download:
    ticket: Ticket
    task: asyncio.Task[None] | None = None
    holds_bytes: bool = field(default=False)


class Downloads:
    """Fetches for tickets. Belongs to the event loop's thread.

    Args:
        fetcher: gets the bytes.
        bounds: see there.
        done: told once per ticket that was not abandoned: the bytes, or why there are none.
        fail: ends the worker, if `done` raises.
        clock: monotonic seconds.
        metrics, log: for what was fetched, and unexpected errors.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        bounds: Bounds,
        *,
        done: Callable[[Ticket, memoryview | PoisonError], None],
        fail: Callable[[FatalError], None],
        clock: Clock,
        metrics: Metrics,
        log: Log,
    ) -> None:
        self._fetcher = fetcher
        self._turns = Turns(bounds.concurrency)
        self._gate = BytesGate(bounds.max_bytes)
        self._max_waiting = bounds.max_waiting
        self._done = done
        self._fail = fail
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._downloads: dict[Place, _Download] = {}
        self._waiting: Counter[PartitionId] = Counter()

    @property
    def full(self) -> frozenset[PartitionId]:
        """Partitions from which nothing more should be taken until some of their claims are
        through."""
        return frozenset(p for p, count in self._waiting.items() if count >= self._max_waiting)

    @property
    def waiting(self) -> int:
        """Claims that are not fetched yet."""
        return self._waiting.total()

    def start(self, ticket: Ticket) -> None:
        """Fetch for a ticket with a claim."""
        download = self._downloads[_place(ticket)] = _Download(ticket)
        self._waiting[ticket.partition] += 1
        download.task = asyncio.get_running_loop().create_task(self._run(download))

    def release(self, ticket: Ticket) -> None:
        """The record is settled or abandoned: its bytes are let go. Without effect for a record
        that claimed nothing."""
        if ticket.claim is None:
            return
        download = self._downloads.pop(_place(ticket), None)
        if download is not None and download.holds_bytes:
            self._gate.give(ticket.claimed_bytes)

    def abandon(self, partition: PartitionId, epoch: int) -> list[Ticket]:
        """The epoch has ended: give up what is not fetched yet. Returns the tickets; `done` will
        not be called for them, and each is still to be released."""
        given_up = [
            each
            for each in self._downloads.values()
            if each.task is not None
            and (each.ticket.partition, each.ticket.epoch) == (partition, epoch)
        ]
        for download in given_up:
            self._end(download)
        return [download.ticket for download in given_up]

    async def close(self) -> None:
        """Give up everything, and close the connections."""
        tasks = [each.task for each in self._downloads.values() if each.task is not None]
        for download in list(self._downloads.values()):
            self._end(download)
        if tasks:
            await asyncio.wait(tasks)
        await self._fetcher.close()

    def _end(self, download: _Download) -> None:
        """It waits no longer, for whatever reason."""
        task, download.task = download.task, None
        if task is None:
            return
        self._waiting[download.ticket.partition] -= 1
        if not self._waiting[download.ticket.partition]:
            del self._waiting[download.ticket.partition]
        if task is not asyncio.current_task():
            task.cancel()

    async def _run(self, download: _Download) -> None:
        got = await self._fetch(download)
        self._end(download)
        try:
            self._done(download.ticket, got)
        except Exception as error:  # noqa: BLE001 (the boundary of this task)
            self._log.exception("claim_lost", source=str(download.ticket.coordinates))
            self._fail(FatalError(f"claim: {type(error).__name__}: {error}"))

    async def _fetch(self, download: _Download) -> memoryview | PoisonError:
        ticket, claim = download.ticket, download.ticket.claim
        if claim is None:
            raise ValueError(f"{ticket.coordinates} claims nothing")
        begun_at = self._clock()
        try:
            await self._gate.take(claim.length)
            download.holds_bytes = True
            data = await self._fetcher.fetch(claim, lambda: self._turns.of(ticket.stream))
        except PoisonError as error:
            return error
        except Exception as error:  # noqa: BLE001 (one record's, not the worker's)
            # One claim must not end the worker, or it would end every worker after this one.
            self._log.exception("claim_failed", source=str(ticket.coordinates))
            return fault(Reason.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        self._metrics.add(m.CLAIMED_BYTES, data.nbytes, ticket.route)
        seconds = self._clock() - begun_at
        self._metrics.observe(m.STAGE_SECONDS, seconds, ticket.route, "fetch")
        return data


def _place(ticket: Ticket) -> Place:
    return (*ticket.partition, ticket.epoch, ticket.record.offset)
