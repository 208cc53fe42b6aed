"""What is read in part agrees with what the codec reads whole."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import read_frame, write_result
from schemas.errors import PoisonError, WireError
from schemas.partial import read_result_keys, read_stream_id
from schemas.record import RawRecord
from schemas.result import Detection, ResultMessage, Source, Status, Times
from schemas.settings import LimitSettings

JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 20
LIMITS = LimitSettings()

keys = st.one_of(st.none(), st.binary(max_size=300), st.text(max_size=90).map(str.encode))
names = st.one_of(st.none(), st.text(max_size=300))


def a_record(value: bytes | None, key: bytes | None = None) -> RawRecord:
    return RawRecord("frames", 3, 17, key, value, 0)


def fields(stream_id: str | None, data: object) -> dict[str, object]:
    stated = {} if stream_id is None else {"stream_id": stream_id}
    return {**stated, "seq": 1, "captured_at_us": 2, "encoding": "jpeg", "data": data, "new": [1]}


def in_form(form: str, stream_id: str | None) -> bytes:
    if form == "json":
        return json.dumps(fields(stream_id, "/9j/"), ensure_ascii=False).encode()
    return msgpack.packb(fields(stream_id, JPEG)) if form == "envelope" else JPEG


@given(st.sampled_from(["envelope", "json", "bare"]), names, keys)
def test_the_stream_is_the_one_that_the_codec_reads(
    form: str, stream_id: str | None, key: bytes | None
) -> None:
    record = a_record(in_form(form, stream_id), key)
    stream = read_stream_id(record)

    assert 0 < len(stream.encode()) <= 4 + 2 * 256
    try:
        frame = read_frame(record, LIMITS)
    except PoisonError:
        return
    assert stream == frame.stream_id


@given(st.one_of(st.none(), st.binary(max_size=40)), keys)
def test_any_record_has_a_stream(value: bytes | None, key: bytes | None) -> None:
    assert read_stream_id(a_record(value, key))


@pytest.mark.parametrize(
    ("value", "key", "stream"),
    [
        (None, b"cam", "cam"),
        (b"", None, "frames-3"),
        (b"", b"", "frames-3"),
        (b"{nonsense", b"\xff\x00", "hex:ff00"),
        (b"{" * 5_000, b"cam", "cam"),
        (msgpack.packb({"stream_id": "gate", "v": "later"}), b"cam", "gate"),
        (msgpack.packb({"stream_id": "x" * 257}), b"cam", "cam"),
        (JPEG, b"k" * 257, "frames-3"),
    ],
)
def test_a_record_that_is_no_frame_is_named_as_well_as_can_be(
    value: bytes | None, key: bytes | None, stream: str
) -> None:
    assert read_stream_id(a_record(value, key)) == stream


def a_result(**changes: object) -> dict[str, object]:
    result = ResultMessage(
        stream_id="cam",
        seq=1,
        captured_at_us=2,
        status=Status.EXPIRED,
        width=4,
        height=3,
        detections=[Detection((0.0, 0.0, 1.0, 1.0), 0.5, 0, "person")],
        times=Times(
            received_us=0, batched_us=0, started_us=0, finished_us=0,
            decode_ms=0.0, infer_ms=0.0, post_ms=0.0,
        ),
        source=Source("frames", 3, 17),
    )  # fmt: skip
    return {**msgpack.unpackb(write_result(result)), **changes}


def test_a_results_keys_are_its_own() -> None:
    found = read_result_keys(msgpack.packb(a_result(later_key=1)))

    assert (found.stream_id, found.status) == ("cam", Status.EXPIRED)
    assert found.source == Source("frames", 3, 17)


@pytest.mark.parametrize("changes", [{"v": 2}, {"status": "lost"}, {"source": None}])
def test_what_is_no_result_or_a_later_one_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(WireError):
        read_result_keys(msgpack.packb(a_result(**changes)))


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        read_result_keys(data)
