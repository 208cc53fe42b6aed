"""Pictures, folders and videos as streams: what is sent as it is, what is named as unreadable."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from frameloom.open_sources import SourceOptions, open_file, open_sources
from frameloom.produce import name_streams
from frameloom.sources import SourceFrame, Unreadable
from schemas.errors import ConfigError
from schemas.frame import Encoding
from schemas.settings import LimitSettings
from tests.builders_formats import avif, big_tiff, bmp_top_down, gif, tiff
from tests.builders_pictures import jpeg, picture, png, webp
from tests.builders_video import a_video

LIMITS = LimitSettings()


def walk(*arguments: Path | str) -> list[SourceFrame | Unreadable]:
    sources = open_sources([str(a) for a in arguments], SourceOptions(LIMITS))
    return [found for source in sources for found in source.frames()]


@pytest.mark.parametrize(
    ("suffix", "encode", "encoding"),
    [
        (".jpg", jpeg, Encoding.JPEG),
        (".png", png, Encoding.PNG),
        (".webp", webp, Encoding.WEBP),
        (".bmp", bmp_top_down, Encoding.BMP),
        (".tif", tiff, Encoding.TIFF),
        (".gif", gif, Encoding.GIF),
        (".avif", avif, Encoding.AVIF),
    ],
)
def test_pictures_go_out_byte_by_byte(
    tmp_path: Path, suffix: str, encode: object, encoding: Encoding
) -> None:
    data = encode(picture(40, 30))
    path = tmp_path / f"a{suffix}"
    path.write_bytes(data)
    (frame,) = walk(path)
    assert isinstance(frame, SourceFrame)
    assert (frame.data, frame.encoding, frame.at_s) == (data, encoding, None)


def test_what_the_worker_does_not_read_becomes_jpeg(tmp_path: Path) -> None:
    (tmp_path / "a.ppm").write_bytes(cv2.imencode(".ppm", picture(40, 30))[1].tobytes())
    # BigTIFF, and a BMP that is longer than a record may be.
    (tmp_path / "b.tif").write_bytes(big_tiff(picture(40, 30)))
    (tmp_path / "c.bmp").write_bytes(bmp_top_down(picture(400, 300)))
    small = LimitSettings(max_record_bytes=128 * 1024)
    for name in ("a.ppm", "b.tif", "c.bmp"):
        source = open_file(tmp_path / name, SourceOptions(small))
        (frame,) = source.frames()
        assert isinstance(frame, SourceFrame), frame
        assert frame.encoding is Encoding.JPEG
        assert frame.data.startswith(b"\xff\xd8\xff")


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    good = jpeg(picture(40, 30))
    for name, data in {
        "a.jpg": good, "b.jpg": good[:20], "c.jpg": b"", "d.png": b"text", "e.jpg": good,
    }.items():  # fmt: skip
        (tmp_path / name).write_bytes(data)
    found = walk(tmp_path)
    assert [isinstance(each, SourceFrame) for each in found] == [True, False, False, False, True]
    broken = [each for each in found if isinstance(each, Unreadable)]
    assert [Path(each.name).name for each in broken] == ["b.jpg", "c.jpg", "d.png"]
    assert all(each.why for each in broken)


def test_a_folder_s_pictures_are_one_sorted_stream_and_its_videos_are_others(
    tmp_path: Path,
) -> None:
    for name in ("b.jpg", "a.jpg", "notes.txt"):
        (tmp_path / name).write_bytes(jpeg(picture(40, 30)))
    a_video(tmp_path / "drive.mp4", [0, 100])
    sources = open_sources([str(tmp_path)], SourceOptions(LIMITS))
    assert [source.name for source in sources] == [tmp_path.name, "drive"]
    names = [each.name for each in sources[0].frames() if isinstance(each, SourceFrame)]
    assert names == ["a.jpg", "b.jpg"]


def test_a_video_keeps_its_own_times(tmp_path: Path) -> None:
    stamps = [0, 100, 200, 450, 500]
    found = walk(a_video(tmp_path / "v.mkv", stamps))
    frames = [each for each in found if isinstance(each, SourceFrame)]
    assert [round((each.at_s or 0.0) * 1000) for each in frames] == stamps
    greys = [
        int(cv2.imdecode(np.frombuffer(f.data, np.uint8), cv2.IMREAD_COLOR).mean()) for f in frames
    ]
    assert greys == sorted(greys)
    assert greys[-1] - greys[0] == pytest.approx(40, abs=4)


def test_a_video_declares_its_interval(tmp_path: Path) -> None:
    found = walk(a_video(tmp_path / "v.mp4", [0, 100, 200, 300], rate=10))
    intervals = {each.interval_us for each in found if isinstance(each, SourceFrame)}
    assert intervals == {100_000}


def test_a_truncated_video_ends_early_by_name(tmp_path: Path) -> None:
    whole = a_video(tmp_path / "v.mp4", [i * 100 for i in range(20)])
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(whole.read_bytes()[:600])
    found = walk(cut)
    assert found
    assert isinstance(found[-1], Unreadable)
    assert "cut.mp4" in found[-1].name


def test_a_file_that_is_no_video_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(b"nothing like a video")
    (found,) = walk(tmp_path / "v.mp4")
    assert isinstance(found, Unreadable)


def test_missing_and_empty_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        walk(tmp_path / "nowhere.jpg")
    with pytest.raises(ConfigError, match="neither pictures nor videos"):
        walk(tmp_path)


def test_streams_are_named_after_their_sources(tmp_path: Path) -> None:
    folders = [tmp_path / "x" / "cam", tmp_path / "y" / "cam"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a.jpg").write_bytes(jpeg(picture(40, 30)))
    sources = open_sources([str(folder) for folder in folders], SourceOptions(LIMITS))
    assert list(name_streams(sources, [])) == ["cam", "cam-2"]
    assert name_streams(sources, ["one"]) == {"one": sources}
    with pytest.raises(ConfigError, match="empty"):
        name_streams(sources, [""])
