"""The desk: what a record and a frame of a segment have in common between receipt and settlement.

A place in the order, a way into the engine and out of it, and an answer when its turn has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pipeline.flow import Flow
from pipeline.item import Item
from pipeline.ledger import Ledger
from pipeline.sequencer import Sequencer
from workers.anchor import Time
from workers.delivery_counts import DeliveryCounts
from workers.downloads import Downloads
from workers.logs import RecordLog
from workers.tickets import Admitted, Answer, Segment, Settled, Ticket

_LOGGED_DETAIL = 200
"""Characters of a dead letter's detail in the log."""


@dataclass(frozen=True, slots=True)
class Books:
    """The three pure accounts of one worker."""

    ledger: Ledger
    sequencer: Sequencer[Answer]
    flow: Flow


@dataclass(frozen=True, slots=True)
class Ends:
    """Where delivery hands things on. Neither may block; credits bound them both.

    Attributes:
        submit: items, to the engine.
        put: an answer whose turn it is, to the sink.
        downloads: fetch what records claim, and tell `Delivery.fetched`.
        read: a segment, to be decoded into frames.
    """

    submit: Callable[[Sequence[Item]], None]
    put: Callable[[Answer], None]
    downloads: Downloads
    read: Callable[[Segment], None]


class Desk:
    """Belongs to the event loop's thread.

    Attributes:
        ledger, flow, ends, counts: of the worker.
        progress: set whenever something settled or a partition came or went. Waiters clear it,
            look again, and wait.
        last_progress_at: monotonic seconds of the last settlement, or of the first receipt after
            nothing was in flight.
        settled: records settled since the start.
    """

    def __init__(
        self, books: Books, ends: Ends, counts: DeliveryCounts, record_log: RecordLog, time: Time
    ) -> None:
        self.ledger, self.flow, self.ends, self.counts = books.ledger, books.flow, ends, counts
        self._sequencer = books.sequencer
        self._record_log = record_log
        self._clock = time.clock
        self._inside: dict[int, Ticket] = {}
        """Attempt id → whose item is in the engine."""
        self.progress = asyncio.Event()
        self.last_progress_at = time.clock()
        self.settled = 0

    def is_open(self, ticket: Ticket) -> bool:
        """Whether its epoch is still open, so that answering it is this worker's job."""
        return self.ledger.is_open(ticket.partition, ticket.epoch)

    def touch(self) -> None:
        """Something moved, though nothing settled."""
        self.last_progress_at = self._clock()

    def receive(self) -> None:
        """Something comes in. After nothing was in flight, waiting for progress begins now."""
        if not self.flow.items:
            self.touch()

    def expect(self, tickets: Sequence[Ticket]) -> None:
        """What came in, of one route, has its places in the order."""
        self.counts.received(tickets)
        for ticket in tickets:
            if ticket.key is not None:
                self._sequencer.expect(ticket.key, ticket.place)

    def enter(self, admitted: Admitted) -> Item:
        """Its item, which the caller submits now."""
        self._inside[admitted.item.attempt_id] = admitted.ticket
        return admitted.item

    def leave(self, item: Item) -> Ticket | None:
        """Whose item comes out of the engine; None when it was out already."""
        return self._inside.pop(item.attempt_id, None)

    def go_on(self, admitted: Admitted | Settled) -> None:
        """On to the engine, or straight to its answer."""
        if isinstance(admitted, Admitted):
            self.ends.submit([self.enter(admitted)])
        else:
            self.answer([admitted.answer])

    def answer(self, answers: Iterable[Answer]) -> None:
        """Send them, and what waited for them, as soon as nothing before them is missing."""
        in_turn: list[Answer] = []
        for answer in answers:
            ticket = answer.ticket
            if ticket.part is not None:
                ticket.part.segment.parts.answer()
            if answer.is_dead_letter:
                at = ticket.coordinates
                self._record_log.warn(
                    "dead_letter",
                    self._clock(),
                    reason=answer.verdict.value,
                    source=f"{at.topic}/{at.partition}/{at.offset}",
                    detail=_detail(answer),
                )
            if ticket.key is None:
                self.ends.put(answer)
            else:
                in_turn += self._sequencer.complete(ticket.key, ticket.place, answer)
        self.counts.in_turn(in_turn, self._clock())
        for answer in in_turn:
            self.ends.put(answer)

    def settle(self, count: int, now: float) -> None:
        """So many were acknowledged, or given up."""
        self.settled += count
        self.last_progress_at = now
        self.progress.set()


def _detail(letter: Answer) -> str:
    """Its beginning, for a line of the log; the whole stands in the dead letter."""
    found = next((value for name, value in letter.headers if name == "fl-detail"), b"")
    return found.decode("utf-8", "replace")[:_LOGGED_DETAIL]
