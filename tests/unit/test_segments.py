"""Video in pieces that can each be decoded alone."""

from __future__ import annotations

import io
from pathlib import Path

import av
import pytest

from frameloom.open_sources import SourceOptions, open_file
from frameloom.segment_cut import SegmentBounds
from frameloom.segments import SegmentOptions
from frameloom.sources import SourceFrame, Unreadable
from schemas.settings import LimitSettings
from tests.builders_video import a_video, an_h264_video

HALF_SECOND = SegmentOptions(0.5, SegmentBounds(1_000_000))


def walk(path: Path, options: SegmentOptions = HALF_SECOND) -> list[SourceFrame | Unreadable]:
    source = open_file(path, SourceOptions(LimitSettings(), segment=options))
    return list(source.frames())


def pictures(frame: SourceFrame) -> list[tuple[int, int]]:
    """Time (ms) and grey of each picture of a segment."""
    with av.open(io.BytesIO(frame.data)) as container:
        return [
            (round(float(f.time or 0) * 1000), round(float(f.to_ndarray(format="gray").mean())))
            for f in container.decode(video=0)
        ]


def test_h264_is_cut_at_key_frames_and_every_picture_is_in_one_segment(tmp_path: Path) -> None:
    whole = an_h264_video(tmp_path / "v.mp4", frames=40, fps=20, key_every=10)
    segments = [found for found in walk(whole) if isinstance(found, SourceFrame)]
    assert [segment.frames for segment in segments] == [10, 10, 10, 10]
    assert [segment.at_s for segment in segments] == [0.0, 0.5, 1.0, 1.5]
    assert {segment.lasts_us for segment in segments} == {500_000}
    with av.open(str(whole)) as container:
        wanted = [
            round(float(f.to_ndarray(format="gray").mean())) for f in container.decode(video=0)
        ]
    found = [pictures(segment) for segment in segments]
    # The same pictures, not pictures of pictures.
    assert [grey for each in found for _, grey in each] == wanted
    assert all([at for at, _ in each] == [i * 50 for i in range(10)] for each in found)


def test_a_group_longer_than_the_segment_stays_whole(tmp_path: Path) -> None:
    whole = an_h264_video(tmp_path / "v.mp4", frames=60, fps=20, key_every=30)
    assert [each.frames for each in walk(whole) if isinstance(each, SourceFrame)] == [30, 30]


def test_other_video_is_encoded_and_keeps_its_times(tmp_path: Path) -> None:
    stamps = [0, 100, 200, 450, 500, 600, 900, 1000, 1100]
    segments = [
        found
        for found in walk(a_video(tmp_path / "v.mkv", stamps))
        if isinstance(found, SourceFrame)
    ]
    # A segment begins with the first frame that comes half a second after the last beginning.
    assert [segment.frames for segment in segments] == [4, 3, 2]
    assert [segment.at_s for segment in segments] == [0.0, 0.5, 1.0]
    found = [
        round((segment.at_s or 0) * 1000) + at
        for segment in segments
        for at, _ in pictures(segment)
    ]
    assert found == pytest.approx(stamps, abs=1)


def test_a_group_over_the_bounds_is_named_and_the_next_one_is_sent(tmp_path: Path) -> None:
    whole = an_h264_video(tmp_path / "v.mp4", frames=60, fps=20, key_every=30)
    found = walk(whole, SegmentOptions(0.5, SegmentBounds(1_000_000, max_frames=20)))
    broken = [each for each in found if isinstance(each, Unreadable)]
    assert "too long without a key frame" in broken[0].why
    assert all("v.mp4#" in each.name for each in broken)


def test_a_cut_off_file_gives_what_it_has(tmp_path: Path) -> None:
    whole = an_h264_video(tmp_path / "v.ts", frames=60, fps=20, key_every=10)
    cut = tmp_path / "cut.ts"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    segments = [found for found in walk(cut) if isinstance(found, SourceFrame)]
    assert 20 <= sum(segment.frames for segment in segments) < 60
    assert all(len(pictures(segment)) == segment.frames for segment in segments[:-1])


@pytest.mark.parametrize("content", [b"", b"nothing like a video"])
def test_a_file_that_is_no_video_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v.mp4").write_bytes(content)
    (found,) = walk(tmp_path / "v.mp4")
    assert isinstance(found, Unreadable)
