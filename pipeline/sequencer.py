"""The sequencer: answers of one stream leave in the order of their source offsets.

Batches finish out of order; answers that are early wait here for the ones before them. The unit
of order is (partition, epoch, stream): across epochs at-least-once promises completeness only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from msgspec import Struct

from pipeline.ledger import PartitionId

Answer = TypeVar("Answer")

Place = tuple[int, int]
"""Where an answer belongs: its record's offset, and its number among the record's answers, which is
0 where there is only one. They rise."""


class StreamKey(Struct, frozen=True, gc=False):
    """One stream within one assignment of one partition: the unit of order."""

    partition: PartitionId
    epoch: int
    stream: str


@dataclass(slots=True)
class _Stream(Generic[Answer]):
    """Places in flight in source order, and the answers that came early."""

    expected: deque[Place] = field(default_factory=deque[Place])
    early: dict[Place, Answer] = field(default_factory=dict[Place, Answer])


class Sequencer(Generic[Answer]):
    """Holds early answers. Used by one thread; O(1) amortised per record.

    A stream without records in flight has no state here, so any number of streams may come and
    go. An answer never overtakes another of its stream; streams never wait for each other.

    Args:
        max_held_per_stream: a stream with this many early answers marks its partition `full`.
    """

    def __init__(self, max_held_per_stream: int) -> None:
        if max_held_per_stream < 1:
            raise ValueError(f"max_held_per_stream must be ≥ 1: {max_held_per_stream}")
        self._limit = max_held_per_stream
        self._assignments: dict[tuple[PartitionId, int], dict[str, _Stream[Answer]]] = {}
        self._full: dict[PartitionId, set[str]] = {}
        self._held = 0

    @property
    def held(self) -> int:
        """Answers that wait for an earlier one."""
        return self._held

    @property
    def streams(self) -> int:
        """Streams with records in flight."""
        return sum(map(len, self._assignments.values()))

    @property
    def full(self) -> frozenset[PartitionId]:
        """Partitions in which a stream holds its limit: nothing more should be taken from them
        until the record that everyone waits for is answered."""
        return frozenset(self._full)

    def expect(self, key: StreamKey, place: Place) -> None:
        """A record of the stream, or a frame of one, was taken in. Places rise within a key.

        Raises:
            ValueError: the place is not above the one before.
        """
        at = (key.partition, key.epoch)
        streams = self._assignments.get(at)
        if streams is None:
            streams = self._assignments[at] = {}
        stream = streams.get(key.stream)
        if stream is None:
            stream = streams[key.stream] = _Stream()
        expected = stream.expected
        if expected and place <= expected[-1]:
            raise ValueError(f"{key} expects {place} after {expected[-1]}")
        expected.append(place)

    def complete(self, key: StreamKey, place: Place, answer: Answer) -> list[Answer]:
        """What stands at `place` has its answer. Returns the answers that may leave now, in
        order: none (it is early), or this one with those that waited for it.

        An epoch that was dropped returns nothing.

        Raises:
            ValueError: the place is not expected, or has its answer already.
        """
        streams = self._assignments.get((key.partition, key.epoch))
        if streams is None:
            return []
        stream = streams.get(key.stream)
        if stream is None or place < stream.expected[0] or place in stream.early:
            raise ValueError(f"{key} does not wait for {place}")
        if place == stream.expected[0] and not stream.early:
            # Nearly always: nobody waits for it.
            stream.expected.popleft()
            if not stream.expected:
                del streams[key.stream]
            return [answer]
        stream.early[place] = answer
        self._held += 1
        leaving = self._release(stream)
        if not stream.expected:
            del streams[key.stream]
        self._mark(key, stream)
        return leaving

    def drop(self, partition: PartitionId, epoch: int) -> list[Answer]:
        """Forget an epoch. Returns the answers that were still held."""
        streams = self._assignments.pop((partition, epoch), {})
        self._full.pop(partition, None)
        abandoned = [answer for stream in streams.values() for answer in stream.early.values()]
        self._held -= len(abandoned)
        return abandoned

    def _release(self, stream: _Stream[Answer]) -> list[Answer]:
        leaving: list[Answer] = []
        while stream.expected and stream.expected[0] in stream.early:
            leaving.append(stream.early.pop(stream.expected.popleft()))
        self._held -= len(leaving)
        return leaving

    def _mark(self, key: StreamKey, stream: _Stream[Answer]) -> None:
        full = self._full.get(key.partition)
        if len(stream.early) >= self._limit:
            self._full.setdefault(key.partition, set()).add(key.stream)
        elif full is not None:
            full.discard(key.stream)
            if not full:
                del self._full[key.partition]
