"""Decoding video files frame by frame, with each frame's own time (PyAV, FFmpeg)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import av
import av.error
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from frameloom.draw import Picture
from frameloom.jpeg import upright

VIDEO_SUFFIXES = frozenset({
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg",
    ".flv", ".wmv", ".3gp", ".ogv", ".h264", ".h265", ".hevc",
})  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class TimedPicture:
    """A decoded frame.

    Attributes:
        picture: (height, width, 3) uint8 BGR, turned as the file's display matrix says.
        at_s: seconds since the first frame, never less than the frame before.
    """

    picture: Picture
    at_s: float


class VideoFrames:
    """One walk over the frames of a video file, or of one behind a web address: iterate once.

    Yields `TimedPicture`s, and one line of text for whatever could not be decoded; a damaged
    packet costs only its frames. `interval_us` is known from the first item on.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.interval_us: int | None = None
        """The average time between frames that the file declares, microseconds, or None."""

    def __iter__(self) -> Iterator[TimedPicture | str]:
        try:
            container = av.open(self._path)
        except av.error.FFmpegError as error:
            yield f"cannot be opened: {error.strerror}"
            return
        with container:
            if not container.streams.video:
                yield "has no video track"
                return
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            rate = stream.average_rate
            self.interval_us = round(1e6 / rate) if rate else None
            yield from self._timed(decoded(container, stream))

    def _timed(self, frames: Iterator[VideoFrame | str]) -> Iterator[TimedPicture | str]:
        """Times from presentation stamps. A frame without one follows its predecessor by the
        declared interval (25 frames/s where none is declared)."""
        step = (self.interval_us or 40_000) / 1e6
        first: float | None = None
        last = -step
        for frame in frames:
            if isinstance(frame, str):
                yield frame
                continue
            if frame.pts is None:
                at_s = last + step
            else:
                first = frame.time if first is None else first
                at_s = max(frame.time - first, last, 0.0)
            last = at_s
            yield TimedPicture(upright(frame), at_s)


def decoded(container: InputContainer, stream: VideoStream) -> Iterator[VideoFrame | str]:
    """Frames in presentation order; a packet that cannot be decoded becomes a line of text."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError as error:
            # The container itself is damaged from here on: there is nothing to go on with.
            yield f"ends early: {error.strerror}"
            return
        if packet is None:
            return
        try:
            yield from packet.decode()
        except av.error.EOFError:
            return
        except av.error.FFmpegError as error:
            yield f"cannot be decoded: {error.strerror}"
