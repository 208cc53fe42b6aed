"""The keys of a segment: which encodings there are, and which frames of it are answered."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgpack
import pytest

from schemas.codec import RawRecord, read_frame, write_frame
from schemas.errors import PoisonError, Reason
from schemas.frame import MAX_SEQ, SEGMENT_ENCODINGS, Encoding, FrameMessage
from schemas.settings import LimitSettings

LIMITS = LimitSettings()
KEYS: dict[str, Any] = {"stream_id": "cam", "seq": 30, "captured_at_us": 5, "encoding": "mp4"}


def read(value: bytes) -> FrameMessage:
    return read_frame(RawRecord("frames", 0, 0, b"cam", value, 0), LIMITS)


def packed(**changes: Any) -> bytes:
    value = msgpack.packb({**KEYS, "data": b"video", **changes})
    assert value is not None
    return value


def as_json(**changes: Any) -> bytes:
    return json.dumps({**KEYS, "data": base64.b64encode(b"video").decode(), **changes}).encode()


@pytest.mark.parametrize("encoding", sorted(SEGMENT_ENCODINGS))
@pytest.mark.parametrize("form", [packed, as_json])
def test_a_segment_in_both_forms(encoding: Encoding, form: Any) -> None:
    frame = read(form(encoding=encoding.value, sample_every=3))
    assert frame.encoding is encoding
    assert (frame.seq, frame.sample_every, frame.sample_fps) == (30, 3, None)
    assert bytes(frame.data) == b"video"


@pytest.mark.parametrize("fps", [5, 0.5, 29.97, 1000])
def test_a_rate_may_be_whole_or_not(fps: float) -> None:
    assert read(packed(sample_fps=fps)).sample_fps == fps


@pytest.mark.parametrize(
    "keys",
    [
        {"sample_every": 0},
        {"sample_every": 1.5},
        {"sample_fps": 0},
        {"sample_fps": -1.0},
        {"sample_fps": 1001},
        {"sample_fps": float("nan")},
        {"sample_fps": float("inf")},
        {"sample_fps": "5"},
        {"sample_every": 2, "sample_fps": 2.0},
        {"seq": MAX_SEQ},
    ],
)
def test_what_cannot_be_sampled_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(PoisonError) as caught:
        read(packed(**keys))
    assert caught.value.code is Reason.BAD_ENVELOPE


def test_pictures_know_no_sampling() -> None:
    frame = read(packed(encoding="jpeg", sample_every=3, seq=MAX_SEQ))
    assert (frame.sample_every, frame.sample_fps) == (None, None)


def test_a_segment_survives_the_way() -> None:
    frame = read(packed(sample_fps=2.5, meta={"a": "b"}))
    assert read(write_frame(frame)) == frame
