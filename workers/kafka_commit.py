"""One commit of offsets by a member of the group: taken, or not now, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from aiokafka.errors import CommitFailedError, IllegalStateError

from pipeline.ledger import PartitionId
from schemas.errors import FatalError
from workers.kafka_clients import AIOKafkaConsumer, KafkaError, TopicPartition, is_member
from workers.logs import Log

COMMIT_TIMEOUT_S = 10.0


async def try_commit(
    consumer: AIOKafkaConsumer, offsets: Mapping[PartitionId, int], log: Log
) -> bool:
    """Commit offsets as this member of the group. False, and logged, when the broker did not take
    them, or was not asked because others may own the partitions.

    Raises:
        FatalError: this group may not commit at all.
    """
    by_partition = {TopicPartition(*p): offset for p, offset in offsets.items()}
    if not is_member(consumer):
        # Others may have had the partitions and left: then the broker would take this, and move
        # back what they committed.
        log.warning("commit_of_lost_membership", partitions=names_of(offsets))
        return False
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            await consumer.commit(by_partition)
    except (CommitFailedError, IllegalStateError):
        # The membership is lost: others own the partitions, and a new assignment will come.
        log.warning("commit_of_lost_membership", partitions=names_of(offsets))
        return False
    except TimeoutError:
        log.warning("commit_timed_out", after_s=COMMIT_TIMEOUT_S)
        return False
    except KafkaError as error:
        if not error.retriable:
            raise FatalError(f"cannot commit: {error}") from error
        log.warning("commit_failed", error=str(error))
        return False
    return True


def names_of(partitions: Iterable[PartitionId]) -> list[str]:
    """As logs show them: topic/number, in order."""
    return sorted(f"{topic}/{number}" for topic, number in partitions)
