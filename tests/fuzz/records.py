"""Records to begin with, and mutations of what is around the picture: envelope, JSON, key."""

from __future__ import annotations

import base64
import json
import math
from random import Random
from typing import Any

import msgpack

from schemas.frame import SEGMENT_ENCODINGS, Encoding
from schemas.magic import sniff, sniff_segment
from schemas.raw import raw_bytes
from schemas.record import RawRecord
from tests.builders_formats import FORMATS, tiff, turned_avif
from tests.builders_pictures import PICTURES, animated, jpeg, oriented, picture, without_tables
from tests.builders_video import a_segment
from tests.fuzz.mutate import damage, tiny_png
from tests.fuzz.mutate_plain import LARGE, plain

TOPIC = "frames"
SIZES = ((37, 29), (64, 48), (201, 133))
"""Of the seeds, width and height: small, so that many can be tried."""

_ENCODINGS = (
    "jpeg", "png", "webp", "bmp", "tiff", "gif", "avif", "rgb24", "gray8", "nv12", "mp4",
    "mkv", "ts", "h264", "h265", "JPEG", "", "\0",
)  # fmt: skip
_RAW = ("rgb24", "bgr24", "gray8", "nv12")
_KEY_BYTES = (None, b"", b"\xff\xfe", bytes(257), "é".encode() * 9)
_KEYS = (
    "v", "stream_id", "seq", "captured_at_us", "encoding", "data", "width", "height",
    "interval_us", "ttl_ms", "meta", "uri", "sha256", "length",
    "sample_every", "sample_fps",
)  # fmt: skip


def seeds() -> list[bytes]:
    """Every kind of picture that the worker reads, in some sizes, and those it refuses by name."""
    found = [
        encode(picture(width, height, seed))
        for seed, (width, height) in enumerate(SIZES)
        for _, encode in PICTURES.values()
    ]
    for encoding in {encoding for encoding, _ in PICTURES.values()}:
        found += [oriented(picture(41, 31), encoding, turn) for turn in (0, 3, 6, 8)]
    found += [encode(picture(*SIZES[0])) for _, encode in FORMATS.values()]
    found += [tiff(picture(41, 31), orientation=turn) for turn in (0, 3, 6)]
    found += [turned_avif(picture(41, 31), turn) for turn in (2, 6)]
    found += [a_segment(each.value, 4) for each in sorted(SEGMENT_ENCODINGS)]
    found += [without_tables(jpeg(picture(41, 31)))]
    found += [animated(picture(33, 21), form) for form in ("PNG", "WEBP")]
    return [*found, b"BM" + bytes(60), b"II*\0" + bytes(20), b"GIF89a" + bytes(20)]


def make_record(pictures: list[bytes], rng: Random) -> RawRecord:
    """One record: mostly a damaged picture, bare or in an envelope, sometimes all is damaged."""
    data = rng.choice(pictures)
    if rng.random() < 0.02:
        data = tiny_png(rng)
    if rng.random() < 0.08:  # two pictures spliced
        other = rng.choice(pictures)
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    if rng.random() < 0.97:
        data = damage(data, rng)
    kind = rng.random()
    value: bytes | None = data
    if kind < 0.15:
        value = _packed(_fields(data, rng), rng)
    elif kind < 0.25:
        value = _json(_fields(data, rng), rng)
    elif kind < 0.255:
        value = rng.choice((None, b"", b"{", b"\x80", b"\xdf\xff\xff\xff\xff"))
    return RawRecord(
        topic=TOPIC,
        partition=rng.choice((0, 2**31 - 1)),
        offset=rng.choice((0, 5, 2**63 - 1)),
        key=b"cam" if rng.random() < 0.9 else rng.choice(_KEY_BYTES),
        value=value,
        timestamp_ms=rng.choice((-1, 0, 1_700_000_000_000, 2**63 - 1)),
        headers=rng.choice(((), (("fl-attempts", rng.randbytes(3)),), (("fl-attempts", b"7"),))),
    )


def _fields(data: bytes, rng: Random) -> dict[str, Any]:
    """An envelope with some keys missing or holding what they should not."""
    fields: dict[str, Any] = {
        "v": 1, "stream_id": "cam", "seq": 4, "captured_at_us": 1_700_000_000_000_000,
        "encoding": _encoding_of(data, rng), "data": data,
    }  # fmt: skip
    if rng.random() < 0.1:
        encoding, width, height = rng.choice(_RAW), rng.randrange(40), rng.randrange(40)
        nbytes = raw_bytes(Encoding(encoding), width, height) + rng.choice((0, 0, 0, -1, 1))
        raw = {"data": rng.randbytes(max(nbytes, 0)), "width": width, "height": height}
        fields |= raw | {"encoding": encoding}
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        key = rng.choice(_KEYS)
        if rng.random() < 0.15:
            fields.pop(key, None)
        elif key == "encoding":
            fields[key] = rng.choice(_ENCODINGS)
        else:
            fields[key] = _odd(rng)
    return fields


def _encoding_of(data: bytes, rng: Random) -> str:
    """What the bytes begin like; an elementary stream, or anything, where that says nothing."""
    if data.startswith((b"\0\0\1", b"\0\0\0\1")):
        return rng.choice(("h264", "h265"))
    view = memoryview(data)
    return sniff(view) or sniff_segment(view) or rng.choice(_ENCODINGS[:7])


def _odd(rng: Random) -> Any:
    """A value that a key may not expect."""
    deep: Any = "x"
    for _ in range(rng.choice((3, 100, 2000))):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    return rng.choice((
        None, True, -1, 0, 1, 2, -(2**63), 2**63, 2**64 - 1, rng.choice(LARGE), 1.5, math.nan,
        math.inf, -math.inf, "", "cam", "é" * 200, "\0", [], {}, {"a": "b"}, {"a": 1}, deep,
        b"", rng.randbytes(12), {"k" * 300: "v" * 3000}, {str(i): "v" for i in range(3000)},
    ))  # fmt: skip


def _packed(fields: dict[str, Any], rng: Random) -> bytes:
    try:
        packed: bytes = msgpack.packb(fields)
    except (ValueError, OverflowError, RecursionError):  # msgpack's own limits
        packed = b"\x81\xa1a" + b"\x91" * 3000
    return plain(packed, rng) if rng.random() < 0.4 else packed


def _json(fields: dict[str, Any], rng: Random) -> bytes:
    try:
        text = json.dumps(fields, default=lambda raw: base64.b64encode(raw).decode())
    except (TypeError, RecursionError):
        text = '{"a":' * 3000
    if rng.random() < 0.2:
        odd = ("\\ud800", "\\u0000", "1e999", '"', "{", "9" * 5000, "\\", "\x01", "=", "é")
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(odd) + text[at:]
    value = text.encode("utf-8", "surrogatepass")
    return plain(value, rng) if rng.random() < 0.3 else value
