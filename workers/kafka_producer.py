"""The library's producer, with every failure of its own looked at.

A producer that fails says so several times: in what its caller awaits, in a future that only a
commit looks at, and in one per batch that only a second batch for the partition waits for. Once
the caller has given up, nobody looks at the latter two, and Python reports "Future exception was
never retrieved" for each when it is collected: alarming, and nothing new.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.producer.message_accumulator import BatchBuilder


class Producer(AIOKafkaProducer):
    """Does what `AIOKafkaProducer` does."""

    # What is looked at below is handed out nowhere else.
    _message_accumulator: Any
    _txn_manager: Any

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int
    ) -> asyncio.Future[Any]:
        """See the library's."""
        acknowledged = await super().send_batch(batch, topic, partition=partition)
        at = TopicPartition(topic, partition)
        for waiting in self._message_accumulator._batches.get(at, ()):  # noqa: SLF001 (nowhere else)
            waiting._drain_waiter.add_done_callback(_retrieve)  # noqa: SLF001 (nowhere else)
        return acknowledged

    async def begin_transaction(self) -> None:
        """See the library's."""
        await super().begin_transaction()
        self._look_at_transaction()

    async def stop(self) -> None:
        """See the library's."""
        try:
            await super().stop()
        finally:
            # It may have failed once more since its transaction began.
            self._look_at_transaction()

    def _look_at_transaction(self) -> None:
        if self._txn_manager is None:
            return
        end: asyncio.Future[None] | None = self._txn_manager.wait_for_transaction_end()
        if end is not None:
            end.add_done_callback(_retrieve)


def _retrieve(ended: asyncio.Future[Any]) -> None:
    if not ended.cancelled():
        ended.exception()
