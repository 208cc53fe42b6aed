"""Whose frame a record holds, and which: what the producer stated, or what the record says."""

from __future__ import annotations

import msgspec

from schemas.errors import PoisonError, Reason
from schemas.frame import MAX_SEQ, MAX_STREAM_ID_BYTES
from schemas.record import RawRecord


class Identity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whose frame it is and which: what a bare picture has to take from its record."""

    stream_id: str
    seq: int
    captured_at_us: int
    ordered: bool
    key_mismatch: bool


def identify(
    record: RawRecord,
    stream_id: str | None = None,
    seq: int | None = None,
    captured_at_us: int | None = None,
) -> Identity:
    """What the producer stated, the record's key, offset and timestamp where it did not."""
    if seq is not None and seq > MAX_SEQ:
        raise _refusal(f"seq is greater than {MAX_SEQ}")
    stated = None if stream_id is None else stream_id.encode()
    # An empty key is what some clients send for none.
    key = record.key or None
    if len(stated or key or b"") > MAX_STREAM_ID_BYTES:
        name = "the key, which names the stream," if stated is None else "stream_id"
        raise _refusal(f"{name} is longer than {MAX_STREAM_ID_BYTES} bytes")
    return Identity(
        stream_id=stream_of_record(record) if stream_id is None else stream_id,
        seq=record.offset if seq is None else seq,
        captured_at_us=_received_us(record) if captured_at_us is None else captured_at_us,
        ordered=stated is not None or key is not None,
        key_mismatch=stated is not None and key is not None and stated != key,
    )


def _received_us(record: RawRecord) -> int:
    """The record's timestamp in Unix microseconds. Producers may set it to any 64-bit number of
    milliseconds; what does not fit a result's `captured_at_us` is the nearest that does."""
    return min(max(record.timestamp_ms * 1000, -(2**63)), 2**63 - 1)


def stream_of_record(record: RawRecord) -> str:
    """The stream of a record that does not state one: its key, else `topic-partition`."""
    if not record.key:
        return f"{record.topic}-{record.partition}"
    try:
        return record.key.decode()
    except UnicodeDecodeError:
        return f"hex:{record.key.hex()}"


def _refusal(detail: str) -> PoisonError:
    return PoisonError(Reason.BAD_ENVELOPE, detail, stage="codec")
