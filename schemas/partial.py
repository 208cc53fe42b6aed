"""The few keys that an account of frames and answers needs, read without the rest.

A frame's picture and a result's detections are stepped over: this is several times as fast as
the codec, and nothing of them is kept.
"""

from __future__ import annotations

import msgspec

from schemas.codec import JSON_OBJECT, MAP_BYTES
from schemas.errors import WireError
from schemas.frame import MAX_STREAM_ID_BYTES
from schemas.frame_identity import stream_of_record
from schemas.magic import sniff
from schemas.record import RawRecord
from schemas.result import RESULT_VERSION, Source, Status


class ResultKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Which frame a result answers, and how.

    Attributes:
        v: version of the format.
        stream_id: the frame's.
        status: how it was answered.
        source: the frame's coordinates.
    """

    v: int = RESULT_VERSION
    stream_id: str
    status: Status
    source: Source


class _FrameKeys(msgspec.Struct):
    stream_id: str | None = None


_RESULTS = msgspec.msgpack.Decoder(ResultKeys)
_ENVELOPES = msgspec.msgpack.Decoder(_FrameKeys)
_OBJECTS = msgspec.json.Decoder(_FrameKeys)


def read_result_keys(data: bytes) -> ResultKeys:
    """Read a result's keys; detections and all else are not even checked.

    Raises:
        WireError: the bytes are not a result, or a result of a later version.
    """
    try:
        keys = _RESULTS.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WireError(f"not a result: {error}") from error
    if keys.v > RESULT_VERSION:
        raise WireError(f"result of version {keys.v}, this reader knows up to {RESULT_VERSION}")
    return keys


def read_stream_id(record: RawRecord) -> str:
    """The stream of a record, at most 256 bytes of UTF-8. Never raises.

    For a record that `read_frame` reads it is the frame's `stream_id`. For any other it is the
    best there is: the stated id, else the key, else `topic-partition`.
    """
    stated = _stated_stream_id(record.value)
    if stated and len(stated.encode()) <= MAX_STREAM_ID_BYTES:
        return stated
    if record.key is not None and len(record.key) > MAX_STREAM_ID_BYTES:
        return f"{record.topic}-{record.partition}"
    return stream_of_record(record)


def _stated_stream_id(value: bytes | None) -> str | None:
    if not value or sniff(memoryview(value)) is not None:
        return None
    try:
        if value[0] in MAP_BYTES:
            return _ENVELOPES.decode(value).stream_id
        if JSON_OBJECT.match(value):
            return _OBJECTS.decode(value).stream_id
    except (msgspec.MsgspecError, RecursionError):
        return None
    return None
