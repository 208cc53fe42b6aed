"""Records ↔ messages: frames in every accepted form, and results.

The format is described in docs/wire-format.md. Reading never copies a picture (JSON's base64
apart) and never raises anything but `PoisonError`, whatever the bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from schemas.dead_letter import dead_letter_headers
from schemas.errors import PoisonError, Reason, WireError
from schemas.frame import (
    FRAME_VERSION,
    MAX_SEQ,
    RAW_ENCODINGS,
    SEGMENT_ENCODINGS,
    Claim,
    Encoding,
    Form,
    FrameEnvelope,
    FrameJson,
    FrameKeys,
    FrameMessage,
)
from schemas.frame_identity import identify
from schemas.magic import refused_format, sniff, sniff_segment
from schemas.raw import raw_fault
from schemas.record import RawRecord
from schemas.result import RESULT_VERSION, ResultMessage
from schemas.settings import LimitSettings

__all__ = [
    "RawRecord",
    "dead_letter_headers",
    "read_frame",
    "read_result",
    "sniff",
    "write_frame",
    "write_json_frame",
    "write_result",
]


class _Version(msgspec.Struct):
    v: int = FRAME_VERSION


@dataclass(frozen=True, slots=True)
class _KeyedForm:
    """How one of the two forms with keys is decoded."""

    form: Form
    keys: msgspec.msgpack.Decoder[FrameEnvelope] | msgspec.json.Decoder[FrameJson]
    meta: msgspec.msgpack.Decoder[_Meta] | msgspec.json.Decoder[_Meta]
    version: msgspec.msgpack.Decoder[_Version] | msgspec.json.Decoder[_Version]


_Meta = dict[str, str] | None
_ENVELOPE = _KeyedForm(
    form=Form.ENVELOPE,
    keys=msgspec.msgpack.Decoder(FrameEnvelope),
    meta=msgspec.msgpack.Decoder(_Meta),
    version=msgspec.msgpack.Decoder(_Version),
)
_JSON = _KeyedForm(
    form=Form.JSON,
    keys=msgspec.json.Decoder(FrameJson),
    meta=msgspec.json.Decoder(_Meta),
    version=msgspec.json.Decoder(_Version),
)
_ENCODER = msgspec.msgpack.Encoder()
_RESULTS = msgspec.msgpack.Decoder(ResultMessage)

MAP_BYTES = frozenset({*range(0x80, 0x90), 0xDE, 0xDF})
"""First bytes of a MessagePack map: fixmap, map 16, map 32."""
JSON_OBJECT = re.compile(rb"[ \t\r\n]*\{")
"""How a JSON object begins."""
_ENCODINGS = {encoding.value: encoding for encoding in Encoding}


def read_frame(record: RawRecord, limits: LimitSettings) -> FrameMessage:
    """Read a record in whichever form it has: bare, MessagePack map or JSON object.

    The form is told by the first bytes, pictures first: no map or JSON object can begin like
    one, because their keys are strings. Nor can one begin like a segment.

    Raises:
        PoisonError: stage `codec`; `empty_record`, `record_too_large`, `bad_envelope`,
            `unsupported_version`, `unsupported_encoding` or `encoding_mismatch`.
    """
    value = record.value
    if not value:
        raise _poison(Reason.EMPTY_RECORD, "the record has no value")
    if len(value) > limits.max_record_bytes:
        raise _poison(
            Reason.RECORD_TOO_LARGE,
            f"{len(value)} bytes, limits.max_record_bytes is {limits.max_record_bytes}",
        )
    view = memoryview(value)
    encoding = sniff(view)
    if encoding is not None:
        return _frame_of_picture(record, view, encoding)
    if value[0] in MAP_BYTES:
        return _frame_of_keys(record, value, _ENVELOPE, limits)
    if JSON_OBJECT.match(value):
        return _frame_of_keys(record, value, _JSON, limits)
    encoding = sniff_segment(view)
    if encoding is not None:
        return _frame_of_picture(record, view, encoding)
    name = refused_format(view)
    if name is not None:
        raise _poison(Reason.UNSUPPORTED_ENCODING, f"the record looks like {name}")
    raise _poison(
        Reason.BAD_ENVELOPE,
        "neither a MessagePack map, nor a JSON object, nor a known picture: "
        f"the first bytes are {value[:8].hex(' ')}",
    )


def write_frame(frame: FrameMessage) -> bytes:
    """The frame as a MessagePack envelope of version 1, for producers; absent keys are left out.

    Nothing is checked here: the reader's rules are those of `read_frame`.
    """
    return _ENCODER.encode(_said(frame))


def write_json_frame(frame: FrameMessage) -> bytes:
    """The frame as a JSON object with base64 `data`, as simple producers send it."""
    return msgspec.json.encode(_said(frame))


def _said(frame: FrameMessage) -> dict[str, object]:
    """The keys of a frame that say something."""
    keys: dict[str, object] = {
        "v": FRAME_VERSION,
        "stream_id": frame.stream_id,
        "seq": frame.seq,
        "captured_at_us": frame.captured_at_us,
        "encoding": frame.encoding.value,
    }
    claim = frame.claim
    if claim is None:
        keys["data"] = frame.data
    else:
        keys |= {"uri": claim.uri, "sha256": claim.sha256, "length": claim.length}
    optional = {
        "width": frame.width,
        "height": frame.height,
        "interval_us": frame.interval_us,
        "ttl_ms": frame.ttl_ms,
        "meta": frame.meta or None,
        "sample_every": frame.sample_every,
        "sample_fps": frame.sample_fps,
    }
    keys.update((key, value) for key, value in optional.items() if value is not None)
    return keys


def write_result(result: ResultMessage) -> bytes:
    """The result as a MessagePack map with every key present, also the empty ones."""
    return _ENCODER.encode(result)


def read_result(data: bytes) -> ResultMessage:
    """Read a result; keys that this version does not know are ignored.

    Raises:
        WireError: the bytes are not a result, or a result of a later version.
    """
    try:
        result = _RESULTS.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        _refuse_later_result(_version(data, _ENVELOPE))
        raise WireError(f"not a result: {error}") from error
    _refuse_later_result(result.v)
    return result


def _keys(value: bytes, form: _KeyedForm) -> FrameEnvelope | FrameJson:
    try:
        keys = form.keys.decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        # A later version may have changed any key but `v`: name the version, not the key.
        _refuse_later(_version(value, form))
        raise _poison(Reason.BAD_ENVELOPE, str(error)) from error
    _refuse_later(keys.v)
    return keys


def _version(value: bytes, form: _KeyedForm) -> int:
    """The `v` of a map that could not be read otherwise; 0 where even that cannot be had."""
    try:
        return form.version.decode(value).v
    except (msgspec.MsgspecError, RecursionError):
        return 0


def _refuse_later(version: int) -> None:
    if version > FRAME_VERSION:
        raise _poison(
            Reason.UNSUPPORTED_VERSION,
            f"v is {version}, this worker reads up to {FRAME_VERSION}: upgrade consumers first",
        )


def _refuse_later_result(version: int) -> None:
    if version > RESULT_VERSION:
        raise WireError(f"result of version {version}, this reader knows up to {RESULT_VERSION}")


def _frame_of_keys(
    record: RawRecord, value: bytes, form: _KeyedForm, limits: LimitSettings
) -> FrameMessage:
    keys = _keys(value, form)
    identity = identify(record, keys.stream_id, keys.seq, keys.captured_at_us)
    encoding = _ENCODINGS.get(keys.encoding)
    if encoding is None:
        raise _poison(
            Reason.UNSUPPORTED_ENCODING,
            f"encoding {keys.encoding[:64]!r} is none of {', '.join(_ENCODINGS)}"
            f"{_meant(keys.encoding)}",
        )
    claim = _claim(keys)
    data = memoryview(b"") if keys.data is None else keys.data
    if encoding in RAW_ENCODINGS:
        _check_raw(keys, encoding, data.nbytes if claim is None else claim.length)
    frame = FrameMessage(
        stream_id=identity.stream_id,
        seq=identity.seq,
        captured_at_us=identity.captured_at_us,
        encoding=encoding,
        data=data,
        claim=claim,
        width=keys.width,
        height=keys.height,
        interval_us=keys.interval_us,
        ttl_ms=keys.ttl_ms,
        meta=_meta(keys.meta, form, limits),
        form=form.form,
        ordered=identity.ordered,
        key_mismatch=identity.key_mismatch,
    )
    if encoding not in SEGMENT_ENCODINGS:
        return frame
    _check_segment(keys, identity.seq, limits)
    return msgspec.structs.replace(
        frame, sample_every=keys.sample_every, sample_fps=keys.sample_fps
    )


def _meant(encoding: str) -> str:
    """What producers write most often instead of ours."""
    plain = encoding.lower()
    plain = {"jpg": "jpeg", "tif": "tiff"}.get(plain, plain)
    return f"; did you mean {plain}?" if plain in _ENCODINGS else ""


def _frame_of_picture(record: RawRecord, data: memoryview, encoding: Encoding) -> FrameMessage:
    identity = identify(record)
    return FrameMessage(
        stream_id=identity.stream_id,
        seq=identity.seq,
        captured_at_us=identity.captured_at_us,
        encoding=encoding,
        data=data,
        form=Form.BARE,
        ordered=identity.ordered,
    )


def _meta(raw: msgspec.Raw, form: _KeyedForm, limits: LimitSettings) -> dict[str, str]:
    size = memoryview(raw).nbytes
    if size == 0:
        return {}
    if size > limits.max_meta_bytes:
        raise _poison(
            Reason.BAD_ENVELOPE,
            f"meta has {size} bytes, limits.max_meta_bytes is {limits.max_meta_bytes}",
        )
    try:
        return form.meta.decode(raw) or {}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _poison(Reason.BAD_ENVELOPE, f"meta: {error}") from error


def _claim(keys: FrameKeys) -> Claim | None:
    """The claim in place of `data`, where there is one: exactly one of the two must be."""
    if keys.uri is None:
        if keys.data is None:
            raise _poison(Reason.BAD_ENVELOPE, "neither data nor uri is there")
        return None
    if keys.data is not None:
        raise _poison(Reason.BAD_ENVELOPE, "data and uri are both there, one must be")
    if keys.sha256 is None or keys.length is None:
        missing = "sha256" if keys.sha256 is None else "length"
        raise _poison(Reason.BAD_ENVELOPE, f"uri needs {missing}")
    return Claim(uri=keys.uri, sha256=keys.sha256.lower(), length=keys.length)


def _check_raw(keys: FrameKeys, encoding: Encoding, nbytes: int) -> None:
    """Raw pictures have no header: the stated size must account for every byte."""
    fault = raw_fault(encoding, keys.width, keys.height, nbytes)
    if fault is not None:
        raise _poison(Reason.ENCODING_MISMATCH, fault)


def _check_segment(keys: FrameKeys, seq: int, limits: LimitSettings) -> None:
    if keys.sample_every is not None and keys.sample_fps is not None:
        raise _poison(Reason.BAD_ENVELOPE, "sample_every and sample_fps exclude each other")
    if seq > MAX_SEQ - limits.max_segment_frames:
        raise _poison(
            Reason.BAD_ENVELOPE,
            f"seq leaves no room for the frames of a segment: it is above {MAX_SEQ} less "
            f"limits.max_segment_frames ({limits.max_segment_frames})",
        )


def _poison(code: Reason, detail: str) -> PoisonError:
    return PoisonError(code, detail, stage="codec")
