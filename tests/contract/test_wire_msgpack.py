"""The wire format against its independent peers: the `msgpack` package and the json module.

What they write our reader reads, what we write they read, and types are those of the document.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import RawRecord, read_frame, read_result, write_frame, write_result
from schemas.errors import PoisonError, Reason
from schemas.frame import MAX_SEQ, Claim, Encoding, FrameMessage
from schemas.result import (
    BatchInfo,
    ClosedBy,
    Detection,
    ModelInfo,
    ResultMessage,
    Source,
    Status,
    Times,
)
from schemas.settings import LimitSettings

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FRAMES = st.fixed_dictionaries(
    {
        "v": st.just(1),
        "stream_id": TEXTS.filter(bool),
        "seq": st.integers(0, MAX_SEQ),
        "captured_at_us": st.integers(-(2**63), 2**63 - 1),
        "encoding": st.sampled_from(["jpeg", "png", "webp", "bmp", "tiff"]),
        "data": st.binary(max_size=70_000),
    },
    optional={
        "width": st.integers(1, 2**31 - 1),
        "height": st.integers(1, 2**31 - 1),
        "interval_us": st.integers(1, 2**63 - 1),
        "ttl_ms": st.integers(1, 2**63 - 1),
        "meta": st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=40),
    },
)
DETECTIONS = st.builds(
    Detection,
    box=st.tuples(*[st.floats(0, 65_535)] * 4),
    score=st.floats(0, 1),
    class_id=st.integers(0, 79),
    label=TEXTS,
)


def record(value: bytes) -> RawRecord:
    return RawRecord("frames", 3, 41, None, value, 1_700_000_000_123)


def read(value: bytes) -> FrameMessage:
    return read_frame(record(value), LimitSettings())


def same(frame: FrameMessage, keys: dict[str, Any]) -> None:
    """The frame says what the keys say, and nothing else."""
    expected = dict.fromkeys(["width", "height", "interval_us", "ttl_ms"]) | {"meta": {}} | keys
    del expected["v"]
    said = {name: getattr(frame, name) for name in expected}
    assert said == expected


def result(**changes: Any) -> ResultMessage:
    keys: dict[str, Any] = {
        "stream_id": "cam-1",
        "seq": 7,
        "captured_at_us": -1,
        "status": Status.OK,
        "width": 1920,
        "height": 1080,
        "detections": [Detection((1.5, 2.0, 3.25, 1080.0), 0.875, 2, "car")],
        "model": ModelInfo("yolov8n", "0123456789ab", "detect", 0.25, 0.7),
        "batch": BatchInfo("1080p", "normal", 4, 2, ClosedBy.IDLE),
        "times": Times(
            received_us=1,
            batched_us=2,
            started_us=3,
            finished_us=4,
            decode_ms=1.5,
            infer_ms=2.0,
            post_ms=0.5,
        ),
        "source": Source("frames", 3, 2**40),
        "meta": {"a": "ä"},
    }
    return ResultMessage(**{**keys, **changes})


@given(FRAMES)
def test_frames_that_msgpack_writes(keys: dict[str, Any]) -> None:
    same(read(msgpack.packb(keys)), keys)


@given(FRAMES)
def test_frames_that_msgpack_reads(keys: dict[str, Any]) -> None:
    frame = read(msgpack.packb(keys))
    assert msgpack.unpackb(write_frame(frame)) == keys


@given(FRAMES.map(lambda keys: {**keys, "data": keys["data"][:500]}))
def test_frames_that_json_writes(keys: dict[str, Any]) -> None:
    for ascii_only in (True, False):
        text = {**keys, "data": base64.b64encode(keys["data"]).decode()}
        same(read(json.dumps(text, ensure_ascii=ascii_only).encode()), keys)


CLAIMS = st.fixed_dictionaries(
    {
        "uri": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=2_048),
        "sha256": st.text("0123456789abcdef", min_size=64, max_size=64),
        "length": st.integers(1, 2**63 - 1),
    }
)


@given(FRAMES, CLAIMS)
def test_claims_both_ways(frame: dict[str, Any], claim: dict[str, Any]) -> None:
    keys = {key: value for key, value in (frame | claim).items() if key != "data"}
    found = read(msgpack.packb(keys))
    assert found.claim == Claim(**claim)
    assert msgpack.unpackb(write_frame(found)) == keys
    assert read(json.dumps(keys).encode()).claim == Claim(**claim)


@pytest.mark.parametrize("length", [0, 255, 256, 65_535, 65_536, 1_000_000])
def test_every_width_of_bin(length: int) -> None:
    data = bytes(length)
    keys = {"stream_id": "s", "seq": 0, "captured_at_us": 0, "encoding": "jpeg", "data": data}
    frame = read(msgpack.packb(keys))
    assert frame.data == data
    assert msgpack.unpackb(write_frame(frame))["data"] == data


@pytest.mark.parametrize("seq", [0, 127, 128, 2**8, 2**16, 2**32 - 1, 2**32, 2**63, MAX_SEQ])
def test_every_width_of_uint(seq: int) -> None:
    keys = {"stream_id": "s", "seq": seq, "captured_at_us": 0, "encoding": "jpeg", "data": b"x"}
    frame = read(msgpack.packb(keys))
    assert frame.seq == seq
    assert msgpack.unpackb(write_frame(frame))["seq"] == seq


@pytest.mark.parametrize("count", [0, 15, 16, 70_000])
def test_every_width_of_map(count: int) -> None:
    """Unknown keys make the map as wide as its three sizes."""
    keys: dict[str, Any] = {f"x{index}": index for index in range(count)}
    keys |= {"stream_id": "s", "seq": 5, "captured_at_us": 0, "encoding": "jpeg", "data": b"x"}
    assert read(msgpack.packb(keys)).seq == 5


def test_the_old_raw_type_is_not_taken_for_bin() -> None:
    """`use_bin_type=False` writes pictures as str: refused, because a reader could not tell."""
    keys = {
        "stream_id": "s",
        "seq": 0,
        "captured_at_us": 0,
        "encoding": "jpeg",
        "data": b"\xff\xd8",
    }
    with pytest.raises(PoisonError) as caught:
        read(msgpack.packb(keys, use_bin_type=False))
    assert caught.value.code is Reason.BAD_ENVELOPE


def test_data_is_bin_and_texts_are_str() -> None:
    frame = FrameMessage(
        stream_id="cam",
        seq=1,
        captured_at_us=2,
        encoding=Encoding.JPEG,
        data=memoryview(b"\xff\xd8"),
    )
    written = write_frame(frame)
    assert b"\xa4data\xc4\x02\xff\xd8" in written
    assert b"\xa9stream_id\xa3cam" in written
    assert b"\xa8encoding\xa4jpeg" in written


def test_a_result_is_the_documented_map() -> None:
    assert msgpack.unpackb(write_result(result())) == {
        "v": 1,
        "stream_id": "cam-1",
        "seq": 7,
        "captured_at_us": -1,
        "status": "ok",
        "width": 1920,
        "height": 1080,
        "detections": [
            {"box": [1.5, 2.0, 3.25, 1080.0], "score": 0.875, "class_id": 2, "label": "car"}
        ],
        "model": {
            "name": "yolov8n",
            "version": "0123456789ab",
            "task": "detect",
            "conf": 0.25,
            "iou": 0.7,
            "backend": "torch",
        },
        "batch": {
            "bucket": "1080p",
            "lane": "normal",
            "size": 4,
            "index": 2,
            "closed_by": "idle",
        },
        "times": {
            "received_us": 1,
            "batched_us": 2,
            "started_us": 3,
            "finished_us": 4,
            "decode_ms": 1.5,
            "infer_ms": 2.0,
            "post_ms": 0.5,
        },
        "source": {
            "topic": "frames",
            "partition": 3,
            "offset": 2**40,
            "frame": 0,
            "frames": 1,
        },
        "meta": {"a": "ä"},
        "clock_skew": False,
        "attempts": 1,
    }


def test_an_empty_result_has_every_key() -> None:
    empty = result(status=Status.EXPIRED, detections=[], model=None, batch=None, meta={})
    plain = msgpack.unpackb(write_result(empty))
    assert plain.keys() == msgpack.unpackb(write_result(result())).keys()
    assert (plain["detections"], plain["model"], plain["batch"]) == ([], None, None)
    assert (plain["status"], plain["meta"]) == ("expired", {})


def test_whole_floats_stay_floats() -> None:
    plain = msgpack.unpackb(write_result(result()))
    numbers = [
        *plain["detections"][0]["box"],
        plain["detections"][0]["score"],
        plain["times"]["infer_ms"],
    ]
    assert all(type(number) is float for number in numbers)


@given(
    st.lists(DETECTIONS, max_size=20),
    st.sampled_from(Status),
    st.integers(0, MAX_SEQ),
    st.dictionaries(TEXTS, TEXTS, max_size=5),
)
def test_results_both_ways(
    detections: list[Detection], status: Status, seq: int, meta: dict[str, str]
) -> None:
    message = result(detections=detections, status=status, seq=seq, meta=meta)
    assert read_result(msgpack.packb(msgpack.unpackb(write_result(message)))) == message


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_every_width_of_array(count: int) -> None:
    detections = [Detection((0.0, 0.0, 1.0, 1.0), 0.5, 0, "x")] * count
    written = write_result(result(detections=detections))
    plain = msgpack.unpackb(written)
    assert len(plain["detections"]) == count
    assert read_result(msgpack.packb(plain)).detections == detections
