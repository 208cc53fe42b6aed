"""The library's records as ours, which know nothing of it."""

from __future__ import annotations

from schemas.record import RawRecord
from workers.kafka_clients import Record


def raw_record(record: Record) -> RawRecord:
    """The same, key and value not copied."""
    return RawRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        timestamp_ms=record.timestamp,
        headers=tuple(record.headers),
    )
