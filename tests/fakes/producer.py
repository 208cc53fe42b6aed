"""A producer whose broker answers by script, in place of aiokafka's."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from aiokafka.errors import MessageSizeTooLargeError


@dataclass
class FakeBatch:
    """What a batch builder of the library does, as far as the sink asks."""

    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    closed: bool = False

    def append(self, *, timestamp: None, key: bytes | None, value: bytes | None, headers: list):
        self.records.append((key, value))
        return self

    def close(self) -> None:
        self.closed = True


class LostError(Exception):
    """In the script: the broker takes the batch, and its acknowledgement is lost."""


@dataclass
class FakeProducer:
    """`script` holds what happens to the next batches: None takes it, an exception refuses it,
    `LostError` takes it and fails all the same. Takes everything once the script is at its end.

    Attributes:
        log: what the broker holds per (topic, partition).
        takes_any_size: topics for which no size in the script is too large.
        hold: set to keep every acknowledgement back until it is set again.
    """

    script: deque[Exception | None] = field(default_factory=deque)
    log: dict[tuple[str, int], list[bytes | None]] = field(default_factory=dict)
    hold: asyncio.Event | None = None
    requests: int = 0
    takes_any_size: frozenset[str] = frozenset()
    failure_of_lost: Exception = field(default_factory=TimeoutError)

    def create_batch(self) -> FakeBatch:
        return FakeBatch()

    async def send_batch(self, batch: FakeBatch, topic: str, *, partition: int) -> object:
        assert batch.closed, "an open batch lingers"
        self.requests += 1
        return asyncio.ensure_future(self._answer(batch, (topic, partition)))

    async def _answer(self, batch: FakeBatch, target: tuple[str, int]) -> None:
        if self.hold is not None:
            await self.hold.wait()
        fate = self.script.popleft() if self.script else None
        if isinstance(fate, MessageSizeTooLargeError) and target[0] in self.takes_any_size:
            fate = None
        if fate is not None and not isinstance(fate, LostError):
            raise fate
        self.log.setdefault(target, []).extend(value for _, value in batch.records)
        if fate is not None:
            raise self.failure_of_lost
