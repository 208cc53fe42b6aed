"""Assertions in the words of the domain, shared by the tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.item import Coordinates
from pipeline.ledger import Ledger, PartitionId
from schemas.result import ResultMessage


def committed_through(ledger: Ledger, partition: PartitionId, offset: int) -> None:
    """Everything up to and including `offset` may be committed, and nothing after it."""
    watermark = ledger.watermark(partition)
    assert watermark == offset + 1, f"watermark of {partition} is {watermark}, not {offset + 1}"


def nothing_to_commit(ledger: Ledger) -> None:
    assert not ledger.to_commit(), f"would commit {ledger.to_commit()}"


def in_offset_order(results: Iterable[ResultMessage]) -> None:
    """The results of each stream stand in the order of their source offsets."""
    last: dict[str, int] = {}
    for result in results:
        before = last.get(result.stream_id, -1)
        offset = result.source.offset
        assert offset > before, f"{result.stream_id}: offset {offset} came after {before}"
        last[result.stream_id] = offset


def each_once(sources: Sequence[Coordinates], sent: Iterable[Coordinates]) -> None:
    """Every record sent was answered, and none twice."""
    none_lost(sources, sent)
    twice = len(sources) - len(set(sources))
    assert twice == 0, f"{twice} of {len(sources)} answers are duplicates"


def none_lost(sources: Sequence[Coordinates], sent: Iterable[Coordinates]) -> None:
    """Every record sent was answered at least once, and nothing else was."""
    answered, wanted = set(sources), set(sent)
    lost, strange = wanted - answered, answered - wanted
    assert not lost, f"{len(lost)} of {len(wanted)} records lost, e.g. {sorted_few(lost)}"
    assert not strange, f"{len(strange)} answers without a record, e.g. {sorted_few(strange)}"


def sorted_few(coordinates: set[Coordinates]) -> list[tuple[str, int, int]]:
    return sorted((c.topic, c.partition, c.offset) for c in coordinates)[:5]
