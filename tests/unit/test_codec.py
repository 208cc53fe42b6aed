"""The codec reads every accepted form to the letter and raises nothing but PoisonError."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.codec import (
    RawRecord,
    dead_letter_headers,
    read_frame,
    read_result,
    sniff,
    write_frame,
    write_result,
)
from schemas.errors import PoisonError, Reason, WireError
from schemas.frame import MAX_SEQ, Claim, Encoding, Form, FrameMessage
from schemas.magic import refused_format
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

LIMITS = LimitSettings()
JPEG = b"\xff\xd8\xff\xe0" + bytes(range(200))
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + bytes(20)
WEBP = b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(20)
BMP = b"BM" + bytes(12) + (40).to_bytes(4, "little") + bytes(40)
TIFF = b"II*\x00" + bytes(20)
FRAME: dict[str, Any] = {
    "v": 1,
    "stream_id": "cam-1",
    "seq": 7,
    "captured_at_us": 1_700_000_000_000_000,
    "encoding": "jpeg",
    "data": JPEG,
}


def record(value: bytes | None, key: bytes | None = b"cam-1") -> RawRecord:
    return RawRecord("frames", 3, 41, key, value, 1_700_000_000_123)


def read(value: bytes | None, key: bytes | None = b"cam-1") -> FrameMessage:
    return read_frame(record(value, key), LIMITS)


def refusal(
    value: bytes | None, key: bytes | None = b"cam-1", limits: LimitSettings = LIMITS
) -> PoisonError:
    with pytest.raises(PoisonError) as caught:
        read_frame(record(value, key), limits)
    assert caught.value.stage == "codec"
    return caught.value


def packed(**changes: Any) -> bytes:
    """FRAME with keys changed, added, or (Ellipsis) left out."""
    keys = {**FRAME, **changes}
    return msgpack.packb({key: value for key, value in keys.items() if value is not ...})


def as_json(**changes: Any) -> bytes:
    keys = {**FRAME, "data": base64.b64encode(JPEG).decode(), **changes}
    return json.dumps({key: value for key, value in keys.items() if value is not ...}).encode()


# --- the three forms ---------------------------------------------------------------------------


def test_envelope_with_every_key() -> None:
    frame = read(packed(width=4, height=5, interval_us=66_667, ttl_ms=500, meta={"a": "ä"}))
    assert frame == FrameMessage(
        stream_id="cam-1",
        seq=7,
        captured_at_us=1_700_000_000_000_000,
        encoding=Encoding.JPEG,
        data=memoryview(JPEG),
        width=4,
        height=5,
        interval_us=66_667,
        ttl_ms=500,
        meta={"a": "ä"},
    )


@pytest.mark.parametrize("value", [packed(), JPEG])
def test_data_is_a_view_of_the_record(value: bytes) -> None:
    frame = read(value)
    assert frame.data.obj is value
    assert frame.data.readonly
    assert bytes(frame.data) == JPEG


@pytest.mark.parametrize(
    ("picture", "encoding"),
    [
        (JPEG, Encoding.JPEG),
        (PNG, Encoding.PNG),
        (WEBP, Encoding.WEBP),
        (BMP, Encoding.BMP),
        (TIFF, Encoding.TIFF),
        (b"MM\x00*" + bytes(9), Encoding.TIFF),
        (b"II+\x00" + bytes(9), Encoding.TIFF),
        (b"GIF87a" + bytes(9), Encoding.GIF),
        (b"GIF89a" + bytes(9), Encoding.GIF),
        (b"\0\0\0\x1cftypavif" + bytes(20), Encoding.AVIF),
        (b"\0\0\0\x1cftypavis" + bytes(20), Encoding.AVIF),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avif" + bytes(20), Encoding.AVIF),
    ],
)
def test_a_bare_picture_takes_the_rest_from_its_record(picture: bytes, encoding: Encoding) -> None:
    assert read(picture) == FrameMessage(
        stream_id="cam-1",
        seq=41,
        captured_at_us=1_700_000_000_123_000,
        encoding=encoding,
        data=memoryview(picture),
        form=Form.BARE,
    )


def test_json_with_every_key() -> None:
    frame = read(as_json(interval_us=1, ttl_ms=2, meta={"a": "\N{GRINNING FACE}"}))
    assert frame.form is Form.JSON
    assert (frame.stream_id, frame.seq, frame.captured_at_us) == ("cam-1", 7, 1_700_000_000_000_000)
    assert bytes(frame.data) == JPEG
    assert (frame.interval_us, frame.ttl_ms, frame.meta) == (1, 2, {"a": "\N{GRINNING FACE}"})


@pytest.mark.parametrize("absent", [..., None])
def test_json_takes_what_it_leaves_out_from_its_record(absent: object) -> None:
    frame = read(b" \t\r\n" + as_json(stream_id=absent, seq=absent, captured_at_us=absent, v=...))
    assert (frame.stream_id, frame.seq, frame.captured_at_us) == (
        "cam-1",
        41,
        1_700_000_000_123_000,
    )
    assert frame.ordered
    assert not frame.key_mismatch


@pytest.mark.parametrize("key", ["stream_id", "seq", "captured_at_us", "encoding", "data"])
def test_the_native_form_requires_its_keys(key: str) -> None:
    for value in (packed(**{key: ...}), packed(**{key: None})):
        error = refusal(value)
        assert error.code is Reason.BAD_ENVELOPE
        assert key in error.detail


def test_null_means_absent_for_keys_that_are_not_required() -> None:
    optional = dict.fromkeys(["width", "height", "interval_us", "ttl_ms", "meta"])
    assert read(packed(**optional)) == read(packed())
    assert read(as_json(**optional)) == read(as_json())


def test_unknown_keys_are_ignored() -> None:
    later = {"x": [1, {"y": None}], "z": msgpack.Timestamp(1, 2), "w": msgpack.ExtType(5, b"ab")}
    assert read(packed(**later)) == read(packed())
    assert read(as_json(x=[1, {"y": 1e300}])) == read(as_json())


def test_of_a_key_that_stands_twice_the_last_counts() -> None:
    one = packed()
    twice = bytes([one[0] + 1]) + one[1:] + msgpack.packb("seq") + msgpack.packb(9)
    assert read(twice).seq == 9


# --- claims ------------------------------------------------------------------------------------

CLAIM: dict[str, Any] = {
    "data": ..., "uri": "https://store/a.jpg", "sha256": "aB" * 32, "length": 5,
}  # fmt: skip


@pytest.mark.parametrize("form", [packed, as_json])
@pytest.mark.parametrize("absent", [..., None])
def test_a_claim_stands_in_place_of_data(form: Any, absent: object) -> None:
    frame = read(form(**(CLAIM | {"data": absent})))
    assert frame.claim == Claim(uri="https://store/a.jpg", sha256="ab" * 32, length=5)
    assert frame.data.nbytes == 0
    assert read(packed()).claim is None


@pytest.mark.parametrize("form", [packed, as_json])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": ...}, "neither data nor uri"),
        ({"data": ..., "sha256": "ab" * 32, "length": 5}, "neither data nor uri"),
        (CLAIM | {"sha256": ...}, "uri needs sha256"),
        (CLAIM | {"length": None}, "uri needs length"),
        (CLAIM | {"length": 0}, "length"),
        (CLAIM | {"length": 2**63}, "length"),
        (CLAIM | {"length": "5"}, "length"),
        (CLAIM | {"sha256": "ab" * 31 + "a"}, "sha256"),
        (CLAIM | {"sha256": "ab" * 31 + "a\n"}, "sha256"),
        (CLAIM | {"sha256": "ab" * 31 + "ag"}, "sha256"),
        (CLAIM | {"uri": ""}, "uri"),
        (CLAIM | {"uri": "x" * 2049}, "uri"),
        ({"uri": "https://store/a.jpg", "sha256": "ab" * 32, "length": 5}, "both there"),
    ],
)
def test_a_claim_is_whole_and_alone(form: Any, changes: dict[str, Any], words: str) -> None:
    error = refusal(form(**changes))
    assert error.code is Reason.BAD_ENVELOPE
    assert words in error.detail


def test_length_and_digest_beside_data_mean_nothing() -> None:
    assert read(packed(sha256="0" * 64, length=1)) == read(packed())


def test_a_raw_pictures_claim_must_fit_its_size() -> None:
    raw = CLAIM | {"encoding": "gray8", "width": 3, "height": 4}
    assert read(packed(**(raw | {"length": 12}))).claim is not None
    error = refusal(packed(**raw))
    assert (error.code, "takes 12 bytes, not 5" in error.detail) == (
        Reason.ENCODING_MISMATCH, True,
    )  # fmt: skip


# --- identity ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "stream", "ordered"),
    [
        ("Kamera-ü".encode(), "Kamera-ü", True),
        (b"\xff\xfe", "hex:fffe", True),
        (None, "frames-3", False),
        (b"", "frames-3", False),
    ],
)
def test_the_stream_of_a_bare_picture(key: bytes | None, stream: str, *, ordered: bool) -> None:
    frame = read(JPEG, key)
    assert (frame.stream_id, frame.ordered) == (stream, ordered)
    frame = read(as_json(stream_id=...), key)
    assert (frame.stream_id, frame.ordered) == (stream, ordered)


@pytest.mark.parametrize("value", [packed(), as_json()])
def test_a_stated_stream_is_served_and_compared_with_the_key(value: bytes) -> None:
    for key, mismatch in ((b"cam-1", False), (b"cam-2", True), (b"\xff", True), (None, False)):
        frame = read(value, key)
        assert (frame.stream_id, frame.ordered) == ("cam-1", True)
        assert frame.key_mismatch is mismatch


def test_the_length_of_a_stream_id_is_counted_in_bytes() -> None:
    assert read(packed(stream_id="ü" * 128)).stream_id == "ü" * 128
    assert refusal(packed(stream_id="ü" * 129)).code is Reason.BAD_ENVELOPE
    assert refusal(packed(stream_id="")).code is Reason.BAD_ENVELOPE
    assert refusal(as_json(stream_id="")).code is Reason.BAD_ENVELOPE


def test_a_long_key_matters_only_where_it_names_the_stream() -> None:
    assert read(JPEG, b"k" * 256).stream_id == "k" * 256
    assert refusal(JPEG, b"k" * 257).code is Reason.BAD_ENVELOPE
    assert read(packed(), b"k" * 257).key_mismatch
    assert read(JPEG, None).stream_id == "frames-3"


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, b""])
def test_no_value(value: bytes | None) -> None:
    assert refusal(value).code is Reason.EMPTY_RECORD


def test_the_record_limit_comes_before_anything_else() -> None:
    limits = LimitSettings(max_record_bytes=10)
    assert refusal(b"x" * 11, limits=limits).code is Reason.RECORD_TOO_LARGE
    assert refusal(b"x" * 10, limits=limits).code is Reason.BAD_ENVELOPE


@pytest.mark.parametrize("version", [2, 255, 2**64 - 1])
@pytest.mark.parametrize("form", [packed, as_json])
def test_a_later_version_is_named_whatever_else_changed(form: Any, version: int) -> None:
    for changes in (
        {},
        {"data": 5, "seq": "x", "stream_id": ...},
        {"meta": [1]},
        {"encoding": "heif"},
        {"width": 0},
    ):
        error = refusal(form(v=version, **changes))
        assert error.code is Reason.UNSUPPORTED_VERSION
        assert str(version) in error.detail


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None, [1]])
def test_a_version_is_a_number_from_one(version: object) -> None:
    assert refusal(packed(v=version)).code is Reason.BAD_ENVELOPE
    assert refusal(as_json(v=version)).code is Reason.BAD_ENVELOPE


def test_an_absent_version_is_the_first() -> None:
    assert read(packed(v=...)) == read(packed())
    assert read(as_json(v=...)) == read(as_json())


@pytest.mark.parametrize(
    ("encoding", "meant"), [("JPEG", "jpeg"), ("jpg", "jpeg"), ("JPG", "jpeg"), ("tif", "tiff")]
)
def test_an_encoding_under_another_name_is_told_its_own(encoding: str, meant: str) -> None:
    assert refusal(packed(encoding=encoding)).detail.endswith(f"; did you mean {meant}?")
    assert "mean" not in refusal(packed(encoding="jxl")).detail


@pytest.mark.parametrize("encoding", ["jxl", "JPEG", "", "jpg", "x" * 5000])
def test_an_unknown_encoding_is_named(encoding: str) -> None:
    error = refusal(packed(encoding=encoding))
    assert error.code is Reason.UNSUPPORTED_ENCODING
    assert repr(encoding[:64]) in error.detail
    assert len(error.detail) < 300


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"\x00\x00\x00\x18ftypheic\x00", "HEIC"),
        (b"\x00\x00\x00\x14ftypqt  ", "QuickTime"),
        (b"\xff\x0a\x00", "JPEG XL"),
        (b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\xff\x4f\xff\x51\x00", "JPEG 2000"),
        (b"%PDF-1.7", "PDF"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "AVI"),
        (b"\x00\x00\x00\x01\x67", "H.264"),
        (b"<svg xmlns=", "SVG"),
    ],
)
def test_a_known_format_that_is_not_taken_is_named(start: bytes, name: str) -> None:
    error = refusal(start)
    assert error.code is Reason.UNSUPPORTED_ENCODING
    assert name in error.detail


@pytest.mark.parametrize(
    "value", [b"hello", b"\xff\xd8", b"[1]", b'"text"', b"BMW is a car", b"\x93abc"]
)
def test_anything_else_shows_its_first_bytes(value: bytes) -> None:
    error = refusal(value)
    assert error.code is Reason.BAD_ENVELOPE
    assert value[:8].hex(" ") in error.detail


@pytest.mark.parametrize(
    "changes",
    [
        {"seq": -1},
        {"seq": True},
        {"seq": 1.0},
        {"seq": "1"},
        {"captured_at_us": 2**63},
        {"captured_at_us": 0.5},
        {"interval_us": 0},
        {"interval_us": -1},
        {"ttl_ms": 0},
        {"ttl_ms": False},
        {"width": 0},
        {"width": -4},
        {"height": 2**31},
        {"stream_id": 5},
        {"meta": {"a": 1}},
        {"meta": []},
        {"meta": "x"},
        {"encoding": 5},
    ],
)
def test_keys_of_wrong_type_or_range(changes: dict[str, Any]) -> None:
    for form in (packed, as_json):
        error = refusal(form(**changes))
        assert error.code is Reason.BAD_ENVELOPE
        assert next(iter(changes)) in error.detail


@pytest.mark.parametrize("data", ["text", 5, None, [1, 2], {}])
def test_data_is_bin(data: object) -> None:
    assert refusal(packed(data=data)).code is Reason.BAD_ENVELOPE


@pytest.mark.parametrize("data", ["QUI", "QU I=", "QUJD\n", "-_-_", "QUJD====", 5, None, [1]])
def test_json_data_is_strict_base64(data: object) -> None:
    assert refusal(as_json(data=data)).code is Reason.BAD_ENVELOPE


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        b"{}",
        b'{"v":1}x',
        b'{"v":NaN}',
        b'{"encoding":"jpeg","data":"QUJD","seq":18446744073709551616}',
        b'{"encoding":"jpeg","data":"QUJD","seq":' + b"9" * 5000 + b"}",
        b'{"encoding":"jpeg","data":"QUJD","seq":1e999}',
        b'{"encoding":"jpeg","data":"QUJD","stream_id":"\\ud800"}',
        b'{"encoding":"jpeg","data":"QUJD","stream_id":"\\udc00"}',
        b'{"encoding":"jpeg","data":"QUJD","stream_id":"\xff"}',
        b'{"encoding":"jpeg","data":"QUJD","meta":{"a":"\\ud800"}}',
        b'{"x":' + b"[" * 200_000,
        b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"meta":' + b'{"a":' * 3_000 + b"1" + b"}" * 3_001,
        b"\x81\xa1x" + b"\x91" * 200_000,
        b"\x81\xa1x" + b"\x81\xa1x" * 100_000,
        b"\x81\xa1v",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa4meta\xdf\xff\xff\xff\xff",
        b"\x81\xa4data\xc6\xff\xff\xff\xff",
        b"\x81\xa4data\xdd\xff\xff\xff\xff",
        b"\x81\xc1",
        packed() + b"\x00",
        packed()[:-1],
        msgpack.packb({**FRAME, 1: 2}),
        msgpack.packb({**FRAME, b"w": 2}),
        packed(stream_id=b"cam"),
        packed(
            stream_id="\ud800".encode("utf-8", "surrogatepass").decode("latin-1"), meta={"a": b""}
        ),
        msgpack.packb({**FRAME, "stream_id": "\ud800"}, unicode_errors="surrogatepass"),
    ],
)
def test_broken_and_hostile_maps(value: bytes) -> None:
    assert refusal(value).code is Reason.BAD_ENVELOPE


def test_meta_is_limited_as_encoded_before_it_is_decoded() -> None:
    room = LIMITS.max_meta_bytes - len(msgpack.packb({"a": "x" * 1000})) + 1000
    assert read(packed(meta={"a": "x" * room})).meta == {"a": "x" * room}
    for value in (
        packed(meta={"a": "x" * (room + 1)}),
        packed(meta={str(index): "" for index in range(10_000)}),
        as_json(meta={"a": "x" * LIMITS.max_meta_bytes}),
    ):
        error = refusal(value)
        assert error.code is Reason.BAD_ENVELOPE
        assert "max_meta_bytes" in error.detail


@pytest.mark.parametrize(
    ("encoding", "length"), [("rgb24", 72), ("bgr24", 72), ("gray8", 24), ("nv12", 36)]
)
def test_raw_pictures_account_for_every_byte(encoding: str, length: int) -> None:
    size = {"width": 6, "height": 4}
    frame = read(packed(encoding=encoding, data=bytes(length), **size))
    assert (frame.encoding.value, frame.width, frame.height) == (encoding, 6, 4)
    for changes in (
        {**size, "data": bytes(length - 1)},
        {**size, "data": bytes(length + 1)},
        {**size, "data": b""},
        {"data": bytes(length), "width": 6},
        {"data": bytes(length), "height": 4},
        {"data": bytes(length), "width": 2**31 - 1, "height": 2**31 - 1},
    ):
        error = refusal(packed(encoding=encoding, **changes))
        assert error.code is Reason.ENCODING_MISMATCH
        assert encoding in error.detail


def test_nv12_has_even_sides() -> None:
    value = packed(encoding="nv12", data=bytes(3 * 4 * 3 // 2), width=3, height=4)
    assert refusal(value).code is Reason.ENCODING_MISMATCH


# --- properties --------------------------------------------------------------------------------

KEYS = st.one_of(st.none(), st.binary(max_size=8), st.just(b"cam-1"))
STARTS = st.sampled_from(
    [b"", b"{", b' {"data":', b"\x86", b"\xde\x00\x06", b"\xff\xd8\xff", b"RIFF", b"BM", JPEG[:4]]
)
SMALL = st.integers(-(2**63), 2**64 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | SMALL | st.floats() | st.text(max_size=6) | st.binary(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def only_poison(value: bytes, key: bytes | None) -> None:
    try:
        frame = read_frame(record(value, key), LIMITS)
    except PoisonError as error:
        dead_letter_headers(error, record(value, key), worker="w", at_us=1, attempts=1)
        return
    assert frame.stream_id
    assert 0 <= frame.seq <= MAX_SEQ


@given(STARTS, st.binary(max_size=300), KEYS)
def test_arbitrary_bytes_only_poison(start: bytes, rest: bytes, key: bytes | None) -> None:
    only_poison(start + rest, key)


@given(st.data())
def test_mutated_records_only_poison(data: st.DataObject) -> None:
    value = bytearray(
        data.draw(st.sampled_from([packed(meta={"a": "b"}, ttl_ms=5), as_json(), JPEG]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(value)))
        patch = data.draw(st.binary(max_size=3))
        value[at : at + data.draw(st.integers(0, 3))] = patch
    only_poison(bytes(value), data.draw(KEYS))


@given(st.dictionaries(st.sampled_from([*FRAME, "meta", "width", "ttl_ms", "x"]), PLAIN))
def test_maps_of_wrong_values_only_poison(changes: dict[str, Any]) -> None:
    only_poison(msgpack.packb({**FRAME, **changes}), b"cam-1")


@given(
    stream_id=TEXTS.filter(bool),
    seq=st.integers(0, MAX_SEQ),
    captured_at_us=st.integers(-(2**63), 2**63 - 1),
    encoding=st.sampled_from([Encoding.JPEG, Encoding.PNG, Encoding.TIFF]),
    data=st.binary(max_size=100),
    interval_us=st.none() | st.integers(1, 2**63 - 1),
    ttl_ms=st.none() | st.integers(1, 2**63 - 1),
    side=st.none() | st.integers(1, 2**31 - 1),
    meta=st.dictionaries(TEXTS, TEXTS, max_size=5),
)
def test_frames_survive_the_way(**keys: Any) -> None:
    side = keys.pop("side")
    keys["data"] = memoryview(keys["data"])
    frame = FrameMessage(**keys, width=side, height=side)
    assert read(write_frame(frame), frame.stream_id.encode()) == frame


def test_absent_keys_are_not_written() -> None:
    written = msgpack.unpackb(write_frame(read(packed())))
    assert written == FRAME


# --- magic -------------------------------------------------------------------------------------


@given(st.binary(max_size=40))
@example(b"")
@example(b"\x89PNG\r\n\x1a")
def test_sniffing_takes_any_bytes(data: bytes) -> None:
    sniff(memoryview(data))
    refused_format(memoryview(data))


@pytest.mark.parametrize("picture", [JPEG, PNG, WEBP, BMP, TIFF])
def test_no_picture_could_have_been_a_frame_map(picture: bytes) -> None:
    assert not picture.lstrip().startswith(b"{")
    with pytest.raises(msgspec.MsgspecError):
        msgspec.msgpack.decode(picture, type=dict[str, msgspec.Raw])


# --- results -----------------------------------------------------------------------------------


def result(**changes: Any) -> ResultMessage:
    return msgspec.structs.replace(
        ResultMessage(
            stream_id="cam-1",
            seq=MAX_SEQ,
            captured_at_us=1,
            status=Status.OK,
            width=1920,
            height=1080,
            detections=[Detection((1.5, 2.0, 3.25, 4.0), 0.875, 2, "car")],
            model=ModelInfo("yolov8n", "0123456789ab", "detect", 0.25, 0.7),
            batch=BatchInfo("1080p", "normal", 4, 2, ClosedBy.IDLE),
            times=Times(
                received_us=1,
                batched_us=2,
                started_us=3,
                finished_us=4,
                decode_ms=1.5,
                infer_ms=2.5,
                post_ms=0.5,
            ),
            source=Source("frames", 3, 41),
            meta={"a": "b"},
        ),
        **changes,
    )


@pytest.mark.parametrize(
    "message", [result(), result(status=Status.EXPIRED, detections=[], model=None, batch=None)]
)
def test_results_survive_the_way(message: ResultMessage) -> None:
    assert read_result(write_result(message)) == message


def test_a_result_with_keys_of_the_future_is_read() -> None:
    plain = msgpack.unpackb(write_result(result()))
    assert read_result(msgpack.packb({**plain, "new": [1]})) == result()


def test_a_result_of_a_later_version_is_named() -> None:
    plain = msgpack.unpackb(write_result(result()))
    for changes in ({}, {"detections": "compressed"}, {"status": "delegated"}):
        with pytest.raises(WireError, match="version 2"):
            read_result(msgpack.packb({**plain, **changes, "v": 2}))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x81\xa1x" + b"\x91" * 200_000)
@example(write_result(result())[:-1])
def test_garbage_is_no_result(data: bytes) -> None:
    with pytest.raises(WireError):
        read_result(data)


# --- dead letters ------------------------------------------------------------------------------


def test_the_headers_of_a_dead_letter() -> None:
    own = (("traceparent", b"00-ab"), ("fl-reason", b"old"), ("x", b""), ("x", b"\xff"))
    poison = PoisonError(Reason.BAD_ENVELOPE, "no frame", stage="codec")
    source = RawRecord("frames", 3, 41, None, b"x", 0, own)
    assert dead_letter_headers(poison, source, worker="w-1", at_us=17, attempts=2) == [
        *own,
        ("fl-reason", b"bad_envelope"),
        ("fl-detail", b"no frame"),
        ("fl-stage", b"codec"),
        ("fl-source", b"frames/3/41"),
        ("fl-attempts", b"2"),
        ("fl-worker", b"w-1"),
        ("fl-at", b"17"),
    ]


@given(st.text(min_size=300, max_size=1100))
@example("x" * 1023 + "ü")
@example("\ud800" * 600)
def test_the_detail_is_cut_between_characters(detail: str) -> None:
    poison = PoisonError(Reason.DECODE_FAILED, detail, stage="decode")
    headers = dict(dead_letter_headers(poison, record(b"x"), worker="w", at_us=1, attempts=1))
    cut = headers["fl-detail"]
    whole = detail.encode("utf-8", "backslashreplace")
    assert len(cut) <= 1024
    assert whole.startswith(cut)
    assert len(whole) - len(cut) < 4 or len(cut) > 1020
    cut.decode("utf-8")


@pytest.mark.parametrize(
    ("timestamp_ms", "captured_at_us"),
    [(-1, -1_000), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (2**53, 2**53 * 1_000)],
)
def test_any_timestamp_of_a_record_fits_a_result(timestamp_ms: int, captured_at_us: int) -> None:
    """Producers set it, and some brokers take any: no answer could be written otherwise."""
    frame = read_frame(RawRecord("frames", 0, 0, None, JPEG, timestamp_ms), LIMITS)
    assert frame.captured_at_us == captured_at_us
    msgspec.msgpack.encode(frame.captured_at_us)
