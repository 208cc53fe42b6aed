"""Where produced frames come from: picture files and videos.

A source is a stream before it is sent: a name and its frames, which may be walked several times.
What cannot be read is named in the walk (`Unreadable`) and never ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import cv2
import numpy as np

from frameloom.draw import Picture
from frameloom.jpeg import encode_jpeg
from frameloom.video import VideoFrames
from pipeline.probe import ProbeLimits, probe
from schemas.codec import sniff
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding, FrameMessage
from schemas.settings import LimitSettings

PICTURE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".avif",
})  # fmt: skip
"""Files of these kinds are taken from a folder; a file named directly may have any suffix."""

_AS_THEY_ARE = frozenset({Encoding.JPEG, Encoding.PNG, Encoding.WEBP})
_IF_THEY_CAN = frozenset({Encoding.BMP, Encoding.TIFF, Encoding.GIF, Encoding.AVIF})
"""Sent as they are where the worker reads them and a record holds them; else as JPEG."""
_ENVELOPE_BYTES = 16 * 1024
"""Left for what stands around a picture in its record."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceFrame:
    """One encoded picture, ready to be sent.

    Attributes:
        name: of the file (and the frame's number in a video), for messages.
        encoding: of `data`.
        data: the encoded picture.
        at_s: seconds from the source's beginning at which it was captured; None for stills.
        interval_us: time to the next frame as the source declares it, microseconds, or None.
        captured_at_us: Unix microseconds, of a live source; None where pacing says when.
        frames: in it: more than one in a segment.
        lasts_us: how long a segment is, microseconds; 0 for a picture.
    """

    name: str
    encoding: Encoding
    data: bytes
    at_s: float | None = None
    interval_us: int | None = None
    captured_at_us: int | None = None
    frames: int = 1
    lasts_us: int = 0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file, or a frame of one, that could not be read: which, and why in one line."""

    name: str
    why: str


class FrameSource(Protocol):
    """A stream before it is sent, from files.

    Attributes:
        quality: of JPEGs made here, 1..100; may be changed between two frames.
    """

    quality: int

    @property
    def name(self) -> str:
        """What its stream is called unless the user says otherwise."""
        ...

    @property
    def total(self) -> int | None:
        """Frames of one walk, where that is known beforehand."""
        ...

    def frames(self) -> Iterator[SourceFrame | Unreadable]:
        """One walk over the frames, in order. Blocks on disk and decoding; call from any one
        thread at a time."""
        ...


class PictureFiles:
    """Picture files as one stream of stills.

    What the worker reads goes out byte by byte as it is, after a look at its header; what else
    OpenCV reads is encoded as JPEG.

    Args:
        name: of the stream.
        paths: the files, in the order wanted.
        quality: of JPEGs made here, 1..100; may be changed on the way.
        limits: pictures beyond them are named as unreadable: the worker would refuse them.
    """

    def __init__(
        self, name: str, paths: Sequence[Path], *, quality: int, limits: LimitSettings
    ) -> None:
        self._name = name
        self._paths = tuple(paths)
        self.quality = quality
        self._limits = ProbeLimits(limits.max_pixels, limits.max_scans)
        self._most_bytes = limits.max_record_bytes - _ENVELOPE_BYTES

    @property
    def name(self) -> str:
        return self._name

    @property
    def total(self) -> int | None:
        return len(self._paths)

    def frames(self) -> Iterator[SourceFrame | Unreadable]:
        for path in self._paths:
            yield self._read(path)

    def _read(self, path: Path) -> SourceFrame | Unreadable:
        try:
            data = path.read_bytes()
        except OSError as error:
            return Unreadable(str(path), error.strerror or type(error).__name__)
        encoding = sniff(memoryview(data))
        if encoding is None or encoding not in _AS_THEY_ARE | _IF_THEY_CAN:
            return self._converted(path, data)
        if encoding in _IF_THEY_CAN and len(data) > self._most_bytes:
            return self._converted(path, data)
        try:
            probe(_as_message(encoding, data), self._limits)
        except PoisonError as error:
            if encoding in _IF_THEY_CAN and error.code is Reason.UNSUPPORTED_ENCODING:
                return self._converted(path, data)
            return Unreadable(str(path), error.detail)
        return SourceFrame(path.name, encoding, data)

    def _converted(self, path: Path, data: bytes) -> SourceFrame | Unreadable:
        try:
            picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        except cv2.error:
            picture = None
        if picture is None:
            return Unreadable(str(path), "not a picture" if data else "an empty file")
        return SourceFrame(
            path.name, Encoding.JPEG, encode_jpeg(cast("Picture", picture), self.quality)
        )


@dataclass(frozen=True, slots=True)
class Video:
    """A video file that becomes one stream.

    Attributes:
        target: anything that FFmpeg opens; never shown.
        name: of the stream.
        shown: `target` for people.
    """

    target: str
    name: str
    shown: str


class VideoFile:
    """A video file as one stream; each frame is encoded as JPEG and keeps its own time.

    Args:
        video: which.
        quality: of the JPEGs, 1..100; may be changed on the way.
    """

    total: int | None = None

    def __init__(self, video: Video, *, quality: int) -> None:
        self._video = video
        self.name = video.name
        self.quality = quality

    def frames(self) -> Iterator[SourceFrame | Unreadable]:
        video = VideoFrames(self._video.target)
        number = 0
        for found in video:
            number += 1
            name = f"{self._video.shown}#{number}"
            if isinstance(found, str):
                yield Unreadable(name, found)
                continue
            yield SourceFrame(
                name,
                Encoding.JPEG,
                encode_jpeg(found.picture, self.quality),
                found.at_s,
                video.interval_us,
            )


def _as_message(encoding: Encoding, data: bytes) -> FrameMessage:
    return FrameMessage(
        stream_id="", seq=0, captured_at_us=0, encoding=encoding, data=memoryview(data)
    )
