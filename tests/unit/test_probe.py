"""The probe: right about every kind of picture, and nothing but PoisonError on any bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.item import Header
from pipeline.probe import ProbeLimits, probe
from pipeline.probe_jpeg import MAX_SEGMENTS, SCANS_AT_FULL_SIZE, _remembered
from pipeline.probe_png import MAX_CHUNKS, MAX_PACKED_BYTES, read_png
from schemas.errors import PoisonError, Reason
from schemas.frame import RAW_ENCODINGS, Encoding
from tests.builders_pictures import (
    EXIF_PREFIX,
    LIMITS,
    PICTURES,
    PNG_SIGNATURE,
    Edits,
    animated,
    chunk,
    damage,
    edits,
    exif,
    frame,
    jpeg,
    many_scans,
    oriented,
    picture,
    png,
    riff,
    scan_start,
    segment,
    sized_png,
    vp8x,
    webp,
    with_chunks,
    with_segments,
)

PROBED = (Encoding.JPEG, Encoding.PNG, Encoding.WEBP)
FORMATS_PROBED = (Encoding.BMP, Encoding.TIFF, Encoding.GIF, Encoding.AVIF)
"""These have a test file each; see test_probe_formats.py."""
SMALL = picture(61, 41)
ENCODED = {
    "jpeg": (Encoding.JPEG, oriented(SMALL, Encoding.JPEG, 6)),
    "jpeg-progressive": (Encoding.JPEG, jpeg(SMALL, progressive=True)),
    "png": (Encoding.PNG, oriented(SMALL, Encoding.PNG, 6)),
    "webp-lossy": (Encoding.WEBP, webp(SMALL)),
    "webp-lossless": (Encoding.WEBP, webp(SMALL, lossless=True)),
    "webp-extended": (Encoding.WEBP, oriented(SMALL, Encoding.WEBP, 6)),
}


def read(data: bytes, encoding: Encoding, limits: ProbeLimits = LIMITS) -> Header:
    return probe(frame(data, encoding), limits)


def outcome(data: bytes, encoding: Encoding) -> Header | PoisonError:
    """What the probe returns or refuses with; any other exception fails the test."""
    try:
        return read(data, encoding)
    except PoisonError as error:
        return error


def refusal(data: bytes, encoding: Encoding, limits: ProbeLimits = LIMITS) -> Reason:
    with pytest.raises(PoisonError) as caught:
        read(data, encoding, limits)
    assert caught.value.stage == "probe"
    assert caught.value.detail
    return caught.value.code


def shown_size(data: bytes) -> tuple[int, int]:
    """Width and height as the reference decoder shows the picture."""
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return pixels.shape[1], pixels.shape[0]


@pytest.mark.parametrize("kind", PICTURES)
def test_reads_every_kind(kind: str) -> None:
    encoding, encode = PICTURES[kind]
    assert read(encode(picture(211, 143)), encoding) == Header(encoding, 211, 143, 1)


@pytest.mark.parametrize("encoding", PROBED)
@pytest.mark.parametrize("orientation", range(10))
def test_orientation_is_the_references(encoding: Encoding, orientation: int) -> None:
    data = oriented(SMALL, encoding, orientation)
    header = read(data, encoding)
    assert (header.width, header.height) == shown_size(data)
    assert header.orientation == (orientation if 1 <= orientation <= 8 else 1)


@pytest.mark.parametrize("encoding", PROBED)
def test_reads_a_view_into_a_larger_record(encoding: Encoding) -> None:
    data = oriented(SMALL, encoding, 6)
    record = b"\xff\xd8\xff junk before " + data + b"\xff\xda junk behind"
    start = record.index(data)
    message = frame(b"", encoding)
    view = memoryview(record)[start : start + len(data)]
    inside = type(message)(stream_id="s", seq=0, captured_at_us=0, encoding=encoding, data=view)
    assert probe(inside, LIMITS) == read(data, encoding)


@pytest.mark.parametrize("name", ENCODED)
def test_every_truncation_is_truncated_or_whole(name: str) -> None:
    """Cut before the size is known it is a truncated header; cut later the size still stands. Of a
    PNG the list of chunks must be whole."""
    encoding, data = ENCODED[name]
    known = False
    for end in range(len(data) + 1):
        found = outcome(data[:end], encoding)
        if isinstance(found, Header):
            known = True
            assert (found.coded_width, found.coded_height) == (61, 41)
        else:
            assert found.code is Reason.TRUNCATED_HEADER
            assert not known, "a longer piece must not know less"
    assert known
    if encoding is Encoding.PNG:
        assert refusal(data[:-1], encoding) is Reason.TRUNCATED_HEADER


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=200), encoding=st.sampled_from(Encoding))
@example(data=b"", encoding=Encoding.JPEG)
@example(data=b"\xff\xd8\xff", encoding=Encoding.JPEG)
def test_any_bytes_are_refused_or_read(data: bytes, encoding: Encoding) -> None:
    found = outcome(data, encoding)
    assert isinstance(found, Header) or found.stage == "probe"


@settings(max_examples=600, deadline=None)
@given(
    name=st.sampled_from(sorted(ENCODED)),
    edits=edits(400, 8),
    tail=st.binary(max_size=40),
)
def test_any_damage_is_refused_or_read(name: str, edits: Edits, tail: bytes) -> None:
    """Near the head of real pictures."""
    encoding, data = ENCODED[name]
    damaged = damage(data, edits, lambda value: b"\xff" + bytes([value]))
    found = outcome(damaged + tail, encoding)
    if isinstance(found, Header):
        assert found.width * found.height <= LIMITS.max_pixels
        assert min(found.width, found.height) >= 1
        assert 1 <= found.orientation <= 8
    else:
        assert found.stage == "probe"


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(["jpeg", "jpeg-progressive"]),
    edits=edits(700, 4),
    cut=st.integers(2, 2_000),
)
def test_a_header_known_again_is_what_reading_it_anew_says(
    name: str, edits: Edits, cut: int
) -> None:
    """The picture before it, damaged or not, was remembered."""
    _, data = ENCODED[name]
    for each in (data, damage(data, edits, lambda value: bytes([value])), data[:cut]):
        known = [outcome(each, Encoding.JPEG) for _ in range(2)]
        _remembered.cache_clear()
        anew = outcome(each, Encoding.JPEG)
        outcome(data, Encoding.JPEG)
        for found in known:
            assert str(found) == str(anew)


def test_pictures_of_one_camera_differ_behind_their_header() -> None:
    _remembered.cache_clear()
    for value in (0, 90, 200):
        encoded = jpeg(np.full((48, 64, 3), value, np.uint8))
        assert outcome(encoded, Encoding.JPEG) == Header(Encoding.JPEG, 64, 48)
    assert _remembered.cache_info().misses == 1
    assert _remembered.cache_info().hits == 2


# --- refusals by name ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encoding", [e for e in Encoding if e not in {*PROBED, *FORMATS_PROBED, *RAW_ENCODINGS}]
)
def test_other_encodings_are_refused_by_name(encoding: Encoding) -> None:
    with pytest.raises(PoisonError, match=encoding.value) as caught:
        read(b"x" * 64, encoding)
    assert caught.value.code is Reason.UNSUPPORTED_ENCODING


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"GIF89a" + bytes(30), "gif"),
        (b"BM" + bytes(12) + b"\x28" + bytes(30), "bmp"),
        (b"II*\0" + bytes(30), "tiff"),
        (b"\0\0\0\x1cftypavif" + bytes(30), "avif"),
        (b"\0\0\0\x1cftypheic" + bytes(30), "HEIC"),
        (b"\xff\x0a" + bytes(30), "JPEG XL"),
        (b"nothing that anybody knows", "no known format"),
    ],
)
@pytest.mark.parametrize("encoding", PROBED)
def test_wrong_bytes_are_named(data: bytes, name: str, encoding: Encoding) -> None:
    with pytest.raises(PoisonError, match=name) as caught:
        read(data, encoding)
    assert caught.value.code is Reason.ENCODING_MISMATCH


@pytest.mark.parametrize("said", PROBED)
@pytest.mark.parametrize("sent", PROBED)
def test_encoding_must_agree_with_the_bytes(said: Encoding, sent: Encoding) -> None:
    data = oriented(SMALL, sent, 1)
    if said is sent:
        assert read(data, said).encoding is sent
    else:
        assert refusal(data, said) is Reason.ENCODING_MISMATCH


@pytest.mark.parametrize(("encoding", "form"), [(Encoding.PNG, "PNG"), (Encoding.WEBP, "WEBP")])
def test_animations_are_refused(encoding: Encoding, form: str) -> None:
    assert refusal(animated(SMALL, form), encoding) is Reason.UNSUPPORTED_ENCODING


# --- bombs --------------------------------------------------------------------------------------


def sized_jpeg(width: int, height: int) -> bytes:
    data = bytearray(jpeg(SMALL))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def sized_webp(width: int, height: int) -> bytes:
    data = bytearray(webp(SMALL))
    data[26:30] = struct.pack("<HH", width, height)
    return bytes(data)


SIZED: dict[Encoding, Callable[[int, int], bytes]] = {
    Encoding.JPEG: sized_jpeg,
    Encoding.PNG: sized_png,
    Encoding.WEBP: sized_webp,
}


@pytest.mark.parametrize("encoding", PROBED)
def test_pixels_are_limited(encoding: Encoding) -> None:
    limits = ProbeLimits(max_pixels=200 * 100, max_scans=1)
    header = read(SIZED[encoding](200, 100), encoding, limits)
    assert (header.width, header.height) == (200, 100)
    assert refusal(SIZED[encoding](201, 100), encoding, limits) is Reason.TOO_MANY_PIXELS
    assert refusal(SIZED[encoding](16383, 16383), encoding) is Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize("encoding", PROBED)
@pytest.mark.parametrize(("width", "height"), [(0, 100), (100, 0), (0, 0)])
def test_zero_sizes(encoding: Encoding, width: int, height: int) -> None:
    assert refusal(SIZED[encoding](width, height), encoding) is Reason.ZERO_SIZE


def test_png_sides_beyond_the_format() -> None:
    assert refusal(sized_png(1 << 31, 1), Encoding.PNG) is Reason.BAD_HEADER


def test_scans_of_progressive_jpegs_are_limited() -> None:
    limits = ProbeLimits(max_pixels=1 << 20, max_scans=5)
    assert read(many_scans(5), Encoding.JPEG, limits).width == 16
    assert refusal(many_scans(6), Encoding.JPEG, limits) is Reason.TOO_MANY_SCANS
    # A sequential picture has many scans only when they are not interleaved.
    assert read(many_scans(6, 1, 0xC0), Encoding.JPEG, limits).width == 16
    assert refusal(many_scans(6, 3, 0xC0), Encoding.JPEG, limits) is Reason.TOO_MANY_SCANS


def test_ordinary_progressive_jpegs_pass() -> None:
    limits = ProbeLimits(max_pixels=1 << 20, max_scans=10)
    assert read(jpeg(picture(300, 200), progressive=True), Encoding.JPEG, limits).width == 300


def test_large_pictures_may_have_fewer_scans() -> None:
    """A pass costs by the pixel, not by the byte."""
    data = many_scans(SCANS_AT_FULL_SIZE + 1)
    pixels = read(data, Encoding.JPEG).width * read(data, Encoding.JPEG).height
    at_full_size = ProbeLimits(max_pixels=pixels, max_scans=100)
    assert refusal(data, Encoding.JPEG, at_full_size) is Reason.TOO_MANY_SCANS
    assert read(many_scans(SCANS_AT_FULL_SIZE), Encoding.JPEG, at_full_size)
    assert read(data, Encoding.JPEG, ProbeLimits(max_pixels=2 * pixels, max_scans=100))
    # The size is the first thing wrong with one that is too large.
    smaller = ProbeLimits(max_pixels=pixels // 2, max_scans=100)
    assert refusal(many_scans(10), Encoding.JPEG, smaller) is Reason.TOO_MANY_PIXELS


def test_the_first_scan_s_header_may_not_be_empty() -> None:
    whole = many_scans(1)
    data = whole[: whole.index(b"\xff\xda")] + b"\xff\xda\0\2"
    assert refusal(data, Encoding.JPEG) is Reason.BAD_HEADER


def test_scans_inside_other_segments_do_not_count() -> None:
    """A comment between scans, and a thumbnail in the metadata, may hold marker-like bytes."""
    limits = ProbeLimits(max_pixels=1 << 20, max_scans=3)
    scans = many_scans(3)
    comment = segment(0xFE, b"\xff\xda" * 50)
    at = scans.rindex(b"\xff\xda")
    data = scans[:2] + segment(0xE1, b"\xff\xda\xff\xd8" * 50) + scans[2:at] + comment + scans[at:]
    assert read(data, Encoding.JPEG, limits).width == 16


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xd8" + segment(0xFE, b"") * (MAX_SEGMENTS + 1),
        many_scans(1)[:-2] + segment(0xFE, b"") * (MAX_SEGMENTS + 1),
    ],
    ids=["before the first scan", "between scans"],
)
def test_endless_segments_end(data: bytes) -> None:
    assert refusal(data, Encoding.JPEG) is Reason.BAD_HEADER


# --- JPEG's oddities ----------------------------------------------------------------------------


def test_fill_bytes_segments_and_a_large_profile() -> None:
    profile = [segment(0xE2, b"ICC_PROFILE\0" + bytes([i, 200]) + bytes(60_000)) for i in range(20)]
    comments = [segment(0xFE, b"x" * 10)] * 100
    data = with_segments(jpeg(SMALL), b"\xff" * 50, *profile, *comments)
    assert read(data, Encoding.JPEG) == Header(Encoding.JPEG, 61, 41)


def test_exif_behind_other_metadata_and_only_the_first() -> None:
    xmp = segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>")
    six, one = (segment(0xE1, EXIF_PREFIX + exif(o)) for o in (6, 1))
    for segments in ([xmp, six], [six, one], [one, six]):
        data = with_segments(jpeg(SMALL), *segments)
        header = read(data, Encoding.JPEG)
        assert (header.width, header.height) == shown_size(data)


@pytest.mark.parametrize("length", [0, 1])
def test_impossible_segment_length(length: int) -> None:
    data = b"\xff\xd8\xff\xe1" + struct.pack(">H", length) + jpeg(SMALL)[2:]
    assert refusal(data, Encoding.JPEG) is Reason.BAD_HEADER


def test_two_frames_and_none() -> None:
    data = jpeg(SMALL)
    at = data.index(b"\xff\xc0")
    sof = data[at : at + 19]
    assert refusal(data[:at] + sof + data[at:], Encoding.JPEG) is Reason.BAD_HEADER
    assert refusal(data[:at] + data[at + 19 :], Encoding.JPEG) is Reason.BAD_HEADER
    assert refusal(data[:at] + b"\xff\xd9", Encoding.JPEG) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (1, 0xC5, Reason.UNSUPPORTED_ENCODING),
        (4, 12, Reason.UNSUPPORTED_ENCODING),
        (9, 0, Reason.BAD_HEADER),
        (9, 4, Reason.BAD_HEADER),
    ],
    ids=["hierarchical", "12 bits", "no components", "components do not fit"],
)
def test_frames_that_no_decoder_reads(at: int, value: int, reason: Reason) -> None:
    data = bytearray(jpeg(SMALL))
    data[data.index(b"\xff\xc0") + at] = value
    assert refusal(bytes(data), Encoding.JPEG) is reason


def test_a_jpeg_cut_right_behind_its_header_still_has_one() -> None:
    data = jpeg(SMALL)
    assert read(data[: scan_start(data)], Encoding.JPEG).width == 61


# --- PNG's and WebP's oddities --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depth", "colour", "compression", "filtering", "interlace"),
    [(8, 1, 0, 0, 0), (3, 0, 0, 0, 0), (16, 3, 0, 0, 0), (4, 2, 0, 0, 0), (8, 2, 1, 0, 0),
     (8, 2, 0, 1, 0), (8, 2, 0, 0, 2)],
)  # fmt: skip
def test_png_values_that_do_not_exist(
    depth: int, colour: int, compression: int, filtering: int, interlace: int
) -> None:
    ihdr = struct.pack(">LLBBBBB", 9, 9, depth, colour, compression, filtering, interlace)
    assert refusal(PNG_SIGNATURE + chunk(b"IHDR", ihdr), Encoding.PNG) is Reason.BAD_HEADER


def test_png_first_chunk_and_checksum() -> None:
    data = bytearray(png(SMALL))
    data[29] ^= 1
    assert refusal(bytes(data), Encoding.PNG) is Reason.BAD_HEADER
    assert refusal(png(SMALL)[:8] + chunk(b"tEXt", bytes(13)), Encoding.PNG) is Reason.BAD_HEADER


def test_png_exif_may_stand_behind_the_pixels() -> None:
    data = png(SMALL)
    data = data[:-12] + chunk(b"eXIf", exif(6)) + data[-12:]
    assert read(data, Encoding.PNG).orientation == 6
    assert shown_size(data) == (41, 61)


@pytest.mark.parametrize("name", [b"eXIf", b"IDAT", b"tEXt", b"abCd"])
@pytest.mark.parametrize("length", [100_000, 0x7FFFFFF0, 0xFFFFFFFF])
def test_png_chunks_must_not_claim_more_than_there_is(name: bytes, length: int) -> None:
    """OpenCV allocates the claim first: 4 GB for a record of 400 bytes."""
    false = chunk(name, b"abc", length=length)
    data = png(SMALL)
    assert refusal(with_chunks(data, false), Encoding.PNG) is Reason.TRUNCATED_HEADER
    assert refusal(data[:-12] + false, Encoding.PNG) is Reason.TRUNCATED_HEADER
    assert refusal(data[:-12] + false[:8], Encoding.PNG) is Reason.TRUNCATED_HEADER
    assert read(data + false, Encoding.PNG).width == 61  # nobody reads behind the end


PACKED_TEXT = b"Comment\0\0" + zlib.compress(bytes(7_900_000), 9)
"""Eight kilobytes, and thousand times as much for whoever unpacks it."""


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        (b"zTXt", PACKED_TEXT),
        (b"iCCP", PACKED_TEXT),
        (b"iTXt", PACKED_TEXT.replace(b"\0\0", b"\0\1\0\0\0", 1)),
        (b"iTXt", b"k" * 80 + b"\0" + bytes(8_000)),
        (b"iTXt", b"no keyword"),
    ],
)
def test_png_with_more_packed_metadata_than_a_decoder_should_unpack(
    name: bytes, payload: bytes
) -> None:
    """Nine hundred of them cost forty seconds in each decoder."""
    small = png(picture(9, 7))
    fit = MAX_PACKED_BYTES // len(payload)
    assert read(with_chunks(small, *[chunk(name, payload)] * fit), Encoding.PNG)
    bomb = with_chunks(small, *[chunk(name, payload)] * (fit + 1))
    assert refusal(bomb, Encoding.PNG) is Reason.TOO_MUCH_METADATA


def test_png_texts_that_are_not_packed_may_be_long() -> None:
    small = png(picture(9, 7))
    plain = chunk(b"tEXt", b"k\0" + bytes(300_000)), chunk(b"iTXt", b"XMP\0\0" + bytes(300_000))
    assert read(with_chunks(small, *plain), Encoding.PNG).width == 9


def test_png_with_endless_chunks() -> None:
    data = with_chunks(png(SMALL), chunk(b"abCd", b"") * (MAX_CHUNKS + 1))
    assert refusal(data, Encoding.PNG) is Reason.BAD_HEADER


def test_webp_picture_must_fill_its_canvas() -> None:
    plain = webp(SMALL)[20:]
    assert read(riff(vp8x(61, 41), (b"VP8 ", plain)), Encoding.WEBP).width == 61
    for canvas in ((61, 40), (16383, 16383), (1 << 24, 1 << 24)):
        data = riff(vp8x(*canvas), (b"VP8 ", plain))
        assert refusal(data, Encoding.WEBP) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    "data",
    [
        riff((b"ABCD", bytes(20))),
        riff((b"VP8 ", b"\x01\0\0\x9d\x01\x2a\x10\0\x10\0")),
        riff((b"VP8 ", b"\x00\0\0\x9d\x01\x2b\x10\0\x10\0")),
        riff((b"VP8L", b"\x2e\0\0\0\0\0")),
        riff((b"VP8L", b"\x2f\0\0\0\xe0\0")),
        riff((b"VP8X", b"\0\0\0\0"), (b"VP8 ", webp(SMALL)[20:])),
    ],
    ids=["no picture", "no key frame", "sync code", "mark", "version", "short VP8X"],
)
def test_webp_headers_that_contradict_the_format(data: bytes) -> None:
    assert refusal(data, Encoding.WEBP) is Reason.BAD_HEADER


def test_webp_exif_counts_only_when_announced() -> None:
    plain = webp(SMALL)[20:]
    parts = (b"VP8 ", plain), (b"EXIF", exif(6))
    for flags, order in ((8, parts), (0, parts), (8, parts[::-1])):
        data = riff(vp8x(61, 41, flags), *order)
        header = read(data, Encoding.WEBP)
        assert (header.width, header.height) == shown_size(data)


def test_a_png_that_ends_before_its_pixels_is_refused_whatever_lies_behind_its_end() -> None:
    """OpenCV 5 reads on there, and allocated the 1 GiB that a chunk of 651 bytes in all claimed."""
    ihdr = struct.pack(">LLBBBBB", 4, 4, 8, 2, 0, 0, 0)
    ended = PNG_SIGNATURE + chunk(b"IHDR", ihdr) + chunk(b"IEND", b"")
    for data in (ended, ended + chunk(b"IDAT", b"", length=1 << 30)):
        with pytest.raises(PoisonError) as caught:
            read_png(memoryview(data))
        assert caught.value.code is Reason.BAD_HEADER
