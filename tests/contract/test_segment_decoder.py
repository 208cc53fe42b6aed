"""Segments of every container: their frames, one by one, and an end that tells of damage."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from pipeline.decode_segment import PyAvSegments
from pipeline.segment import Sampling, SegmentLimits
from pipeline.segment_reader import asks_too_much
from schemas.errors import Reason
from schemas.frame import SEGMENT_ENCODINGS
from tests.builders_video import a_segment, a_sound
from tests.contract.segment_reading import LIMITS, a_message, read

CONTAINERS = sorted(SEGMENT_ENCODINGS)
FRAGMENTED = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}


@pytest.mark.parametrize("encoding", CONTAINERS)
def test_every_frame_with_its_time_and_size(encoding: str) -> None:
    found = read(a_segment(encoding, 6, rate=10), encoding)
    assert found.error is None
    assert found.indices == list(range(6))
    assert found.offsets_ms == [0, 100, 200, 300, 400, 500]
    assert {(f.width, f.height, f.pixels.nbytes) for f in found.frames} == {(64, 48, 64 * 48 * 3)}


@pytest.mark.parametrize("encoding", CONTAINERS)
def test_pixels_are_those_that_were_encoded(encoding: str) -> None:
    found = read(a_segment(encoding, 2), encoding)
    noise = np.random.default_rng(1).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    pixels = np.frombuffer(found.frames[0].pixels, np.uint8).reshape(48, 64, 3)
    # Chroma is halved on the way, so only what is left of the noise can be alike.
    grey, expected = pixels.mean(axis=2).ravel(), noise.mean(axis=2).ravel()
    assert np.corrcoef(grey, expected)[0, 1] > 0.7


def test_frames_come_in_the_order_of_display() -> None:
    assert read(a_segment("mp4", 8, b_frames=2)).offsets_ms == [100 * n for n in range(8)]


def test_only_sampled_frames_come_and_the_last_of_them_says_so() -> None:
    data = a_segment("mkv", 10, rate=10)
    assert read(data, "mkv", Sampling(every=4)).indices == [0, 4, 8]
    assert read(data, "mkv", Sampling(fps=3.0)).indices == [0, 4, 7]
    assert read(data, "mkv", Sampling(every=100)).indices == [0]


def test_times_are_the_streams_own() -> None:
    data = a_segment("mp4", stamps=[3, 4, 8, 20], rate=10)
    assert read(data).offsets_ms == [0, 100, 500, 1700]


def test_a_declared_interval_stands_in_for_time_stamps() -> None:
    found = read(a_segment("h264", 3, rate=10), "h264", interval_us=50_000)
    assert found.offsets_ms == [0, 50, 100]


def test_a_fragmented_file_and_one_of_another_codec() -> None:
    assert read(a_segment("mp4", 6, mux=FRAGMENTED)).indices == list(range(6))
    assert read(a_segment("mp4", 6, codec="mpeg4")).indices == list(range(6))
    assert read(a_segment("mkv", 4, codec="libvpx"), "mkv").indices == list(range(4))


def test_a_phones_video_is_turned_as_it_is_shown() -> None:
    upright = a_segment("mp4", 1)
    data = bytearray(upright)
    # The display matrix of ISO/IEC 14496-12's track header: a quarter turn clockwise.
    at = data.index(b"tkhd") + 4 + 40
    data[at : at + 36] = struct.pack(
        ">9i", 0, 1 << 16, 0, -1 << 16, 0, 0, 48 << 16, 0, 1 << 30
    )  # fmt: skip
    (turned,) = read(bytes(data)).frames
    (plain,) = read(upright).frames
    assert (turned.width, turned.height) == (48, 64)
    shown = np.frombuffer(turned.pixels, np.uint8).reshape(64, 48, 3)
    stored = np.frombuffer(plain.pixels, np.uint8).reshape(48, 64, 3)
    assert np.array_equal(shown, np.rot90(stored, -1))


def test_the_size_of_the_next_frame_is_known_before_it_is_there() -> None:
    reader = PyAvSegments(LIMITS).open(a_message(a_segment(), "mp4"), Sampling())
    assert reader.frame_bytes == 64 * 48 * 3
    reader.close()
    reader.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_nvdec_is_the_cpu() -> None:
    decoder = PyAvSegments(LIMITS, hardware="nvdec")
    assert decoder.name == "pyav-cpu"
    reader = decoder.open(a_message(a_segment("mp4", 1), "mp4"), Sampling())
    while (frame := reader.step()) is None:
        pass
    assert frame.last


# --- broken ones --------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
@pytest.mark.parametrize("encoding", ["mkv", "ts", "h264", "fragmented"])
def test_a_segment_cut_short_gives_its_good_frames_and_says_so(encoding: str, share: float) -> None:
    name = "mp4" if encoding == "fragmented" else encoding
    data = a_segment(name, 12, mux=FRAGMENTED if encoding == "fragmented" else None)
    found = read(data[: int(len(data) * share)], name)
    assert 0 < len(found.frames) < 12
    assert found.indices == list(range(len(found.frames)))
    assert found.error is not None
    assert found.error.code is Reason.DECODE_FAILED


def test_an_index_at_the_end_is_lost_with_it() -> None:
    data = a_segment("mp4", 6)
    found = read(data[: data.index(b"moov") + 100])
    assert (found.frames, found.error is None) == ([], False)


@pytest.mark.parametrize("encoding", ["h264", "ts", "mkv", "mp4"])
def test_what_comes_after_damage_is_not_trusted(encoding: str) -> None:
    data = bytearray(a_segment(encoding, 12))
    middle = len(data) // 2
    data[middle : middle + 300] = bytes(300)
    found = read(bytes(data), encoding)
    assert found.error is not None
    assert 0 < len(found.frames) < 12


@pytest.mark.parametrize("encoding", CONTAINERS)
def test_a_tail_that_holds_no_frame_hurts_nobody(encoding: str) -> None:
    found = read(a_segment(encoding, 6) + bytes(range(1, 256)) * 4, encoding)
    assert found.indices == list(range(6))
    assert found.error is None


@pytest.mark.parametrize("encoding", ["mp4", "mkv", "ts"])
def test_sound_alone_is_no_video(encoding: str) -> None:
    found = read(a_sound(encoding), encoding)
    assert found.error is not None
    assert found.error.code is Reason.UNSUPPORTED_ENCODING


def test_no_frames_at_all() -> None:
    found = read(a_segment("mkv", 0), "mkv")
    assert found.frames == []
    assert found.error is not None


def test_a_box_that_asks_for_more_memory_than_there_can_be() -> None:
    # Found by the fuzzer: a table of 0x7fffffff entries, in place of which FFmpeg reports ENOMEM.
    table = b"\1\0\0\0" + struct.pack(">II", 0x7FFF_FFFF, 0x7FFF_FFFF)
    data = a_segment("mp4", 2)
    start = struct.unpack(">I", data[:4])[0]
    hostile = data[:start] + struct.pack(">I4s", 8 + len(table), b"iinf") + table + data[start:]
    found = read(hostile)
    assert found.error is not None
    assert (found.error.code, found.frames) == (Reason.DECODE_FAILED, [])
    assert "memory" in found.error.detail


def test_a_shortage_of_the_machines_own_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> bytearray:
        raise MemoryError

    monkeypatch.setattr("pipeline.segment_reader.bytearray", refused, raising=False)
    error = MemoryError("from FFmpeg")
    with pytest.raises(MemoryError) as raised:
        asks_too_much(error)
    assert raised.value is error


def test_a_codec_off_the_list() -> None:
    found = read(a_segment("mkv", 2, codec="mpeg1video", rate=25), "mkv")
    assert found.error is not None
    assert found.error.code is Reason.UNSUPPORTED_ENCODING


@pytest.mark.parametrize("encoding", CONTAINERS)
@pytest.mark.parametrize("data", [b"", b"#EXTM3U\n", b"\xff\xd8\xff\xe0" + bytes(100), bytes(500)])
def test_bytes_of_another_kind(encoding: str, data: bytes) -> None:
    found = read(data, encoding)
    assert found.error is not None
    assert found.error.code is Reason.ENCODING_MISMATCH


@pytest.mark.parametrize("encoding", CONTAINERS)
def test_too_many_pixels_are_refused_before_they_are_decoded(encoding: str) -> None:
    limits = SegmentLimits(max_pixels=64 * 48 - 1, max_frames=9, max_us=10**9)
    found = read(a_segment(encoding, 3), encoding, limits=limits)
    assert found.frames == []
    assert found.error is not None
    assert found.error.code is Reason.TOO_MANY_PIXELS


def test_a_stream_that_grows_beyond_the_limit_on_its_way() -> None:
    """Where it is seen at opening, nothing is decoded; else what came before it is good."""
    small, large = a_segment("h264", 3), a_segment("h264", 3, size=(640, 480))
    limits = SegmentLimits(max_pixels=64 * 48, max_frames=9, max_us=10**9)
    found = read(small + large, "h264", limits=limits)
    assert found.indices in ([], [0, 1, 2])
    assert found.error is not None
    assert found.error.code is Reason.TOO_MANY_PIXELS


def test_a_stream_may_change_its_size_within_the_limit() -> None:
    found = read(a_segment("h264", 2) + a_segment("h264", 2, size=(96, 64)), "h264")
    assert [(f.width, f.height) for f in found.frames] == [(64, 48)] * 2 + [(96, 64)] * 2


@pytest.mark.parametrize(
    "limits",
    [SegmentLimits(10**6, max_frames=4, max_us=10**9), SegmentLimits(10**6, 99, max_us=300_000)],
)
def test_too_long_a_segment_is_answered_as_far_as_it_may_go(limits: SegmentLimits) -> None:
    found = read(a_segment("mp4", 9, rate=10), limits=limits)
    assert found.indices == [0, 1, 2, 3]
    assert found.error is not None
    assert found.error.code is Reason.SEGMENT_TOO_LONG


def test_nothing_else_is_opened() -> None:
    """A playlist, and an MP4 whose data lie in another file, as far as a demuxer could be led."""
    for data in (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", b"ffconcat version 1.0\nfile x\n"):
        for encoding in CONTAINERS:
            assert read(data, encoding).frames == []
