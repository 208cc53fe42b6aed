"""The ledger: which offsets are still unanswered, and how far a partition may be committed.

Follows the model of confluentinc/parallel-consumer: only offsets that were received are tracked,
so gaps (compaction, transaction markers) need no handling, and an epoch fences off work of an
assignment that has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.item import Coordinates

PartitionId = tuple[str, int]
"""Topic and partition number. Kafka clients' own named pairs are equal to it."""


@dataclass(slots=True)
class _Assignment:
    """One epoch of one partition. `received` holds the offsets at or above the watermark in
    rising order, `settled` those among them that were answered out of order."""

    epoch: int
    received: deque[int] = field(default_factory=deque[int])
    settled: set[int] = field(default_factory=set[int])
    committed: int | None = None
    last: int = -1

    @property
    def watermark(self) -> int | None:
        if self.received:
            return self.received[0]
        return None if self.last < 0 else self.last + 1

    @property
    def incomplete(self) -> int:
        return len(self.received) - len(self.settled)


class Ledger:
    """Incomplete offsets per (partition, epoch). Used by one thread.

    Every operation is O(1) amortised; memory is proportional to the records in flight.

    Attributes:
        stale: how many settlements arrived for an epoch that had ended (they change nothing).
    """

    def __init__(self) -> None:
        self.stale = 0
        self._assignments: dict[PartitionId, _Assignment] = {}
        self._last_epoch = 0

    def assign(self, partition: PartitionId) -> int:
        """Begin a new epoch of a partition and return its number (unique in this ledger). An
        epoch still open is ended."""
        self._last_epoch += 1
        self._assignments[partition] = _Assignment(self._last_epoch)
        return self._last_epoch

    def drop(self, partition: PartitionId) -> None:
        """End the partition's epoch. Its unanswered offsets are forgotten: they were never
        committed, so their next owner receives them again."""
        self._assignments.pop(partition, None)

    @property
    def partitions(self) -> frozenset[PartitionId]:
        """The partitions with an open epoch."""
        return frozenset(self._assignments)

    def epoch(self, partition: PartitionId) -> int | None:
        """The number of the open epoch, or None."""
        assignment = self._assignments.get(partition)
        return None if assignment is None else assignment.epoch

    def is_open(self, partition: PartitionId, epoch: int) -> bool:
        """Whether this very epoch is the open one."""
        assignment = self._assignments.get(partition)
        return assignment is not None and assignment.epoch == epoch

    def receive(self, at: Coordinates, epoch: int) -> None:
        """A record was taken in. Offsets rise within an epoch; gaps are allowed.

        Raises:
            ValueError: the epoch is not open, or the offset is not above the last one.
        """
        assignment = self._assignments.get((at.topic, at.partition))
        if assignment is None or assignment.epoch != epoch:
            raise ValueError(f"{at} received under epoch {epoch}, which is not open")
        if at.offset <= assignment.last:
            raise ValueError(f"{at} received after offset {assignment.last}")
        assignment.last = at.offset
        assignment.received.append(at.offset)

    def is_behind(self, at: Coordinates) -> bool:
        """Whether the offset is one that this epoch has passed already: the position was reset
        (the topic was cut short or made anew), and a new epoch must begin."""
        assignment = self._assignments.get((at.topic, at.partition))
        return assignment is not None and at.offset <= assignment.last

    def settle(self, at: Coordinates, epoch: int) -> bool:
        """A record was answered durably. False when its epoch has ended (counted in `stale`).

        Raises:
            ValueError: the offset was never received under this epoch, or is settled already.
        """
        assignment = self._assignments.get((at.topic, at.partition))
        if assignment is None or assignment.epoch != epoch:
            self.stale += 1
            return False
        offset, received, settled = at.offset, assignment.received, assignment.settled
        if received and offset == received[0] and not settled:
            # Nearly always: it is the watermark, and nobody settled before it.
            received.popleft()
            return True
        if not received or offset < received[0] or offset in settled:
            raise ValueError(f"{at} is not incomplete under epoch {epoch}")
        if offset > assignment.last:
            raise ValueError(f"{at} was not received under epoch {epoch}")
        settled.add(offset)
        while received and received[0] in settled:
            settled.remove(received.popleft())
        return True

    def incomplete(self, partitions: Iterable[PartitionId] | None = None) -> int:
        """Offsets received and not settled, in these partitions (None: in all)."""
        chosen = self._assignments if partitions is None else partitions
        return sum(self._assignments[p].incomplete for p in chosen if p in self._assignments)

    def watermark(self, partition: PartitionId) -> int | None:
        """The next offset to commit: the lowest incomplete one, or the one after the last
        received. None before anything was received. Never goes back within an epoch."""
        assignment = self._assignments.get(partition)
        return None if assignment is None else assignment.watermark

    def to_commit(self, partitions: Iterable[PartitionId] | None = None) -> dict[PartitionId, int]:
        """Watermarks that are above what was committed in their epoch."""
        chosen = self._assignments if partitions is None else partitions
        found: dict[PartitionId, int] = {}
        for partition in chosen:
            assignment = self._assignments.get(partition)
            if assignment is None or assignment.watermark is None:
                continue
            if assignment.committed is None or assignment.watermark > assignment.committed:
                found[partition] = assignment.watermark
        return found

    def committed(self, partition: PartitionId, epoch: int, offset: int) -> None:
        """The group's offset is now `offset`. A commit of an ended epoch changes nothing."""
        assignment = self._assignments.get(partition)
        if assignment is not None and assignment.epoch == epoch:
            assignment.committed = max(offset, assignment.committed or 0)
