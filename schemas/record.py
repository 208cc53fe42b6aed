"""A record as received, before anything is known about it."""

from __future__ import annotations

from msgspec import Struct


class RawRecord(Struct, frozen=True, gc=False):
    """A Kafka record. Frames read from it view its `value`, so it lives as long as they do.

    Attributes:
        topic, partition, offset: its coordinates.
        key: names the stream, or None.
        value: the frame in one of the accepted forms, or None (a tombstone).
        timestamp_ms: Unix milliseconds, set by the producer or the broker.
        headers: in the order received, names may repeat.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()
