"""A video file as one stream of segments."""

from __future__ import annotations

from collections.abc import Iterator

import av
import av.error
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from frameloom.capture import Captured, CaptureError
from frameloom.segments import REMUXED, Segment, SegmentOptions, encoded, remuxed
from frameloom.sources import SourceFrame, Unreadable, Video
from frameloom.video import decoded
from schemas.frame import Encoding


class SegmentFile:
    """Cuts a video file into segments, which keep its times.

    Args:
        video: which.
        options: how it is cut.
    """

    total: int | None = None
    quality = 0
    """Segments have none to choose."""

    def __init__(self, video: Video, options: SegmentOptions) -> None:
        self._video = video
        self.name = video.name
        self._options = options

    def frames(self) -> Iterator[SourceFrame | Unreadable]:
        try:
            container = av.open(self._video.target)
        except av.error.FFmpegError as error:
            yield Unreadable(self._video.shown, f"cannot be opened: {error.strerror}")
            return
        with container:
            if not container.streams.video:
                yield Unreadable(self._video.shown, "has no video track")
                return
            yield from self._cut(container, container.streams.video[0])

    def _cut(
        self, container: InputContainer, stream: VideoStream
    ) -> Iterator[SourceFrame | Unreadable]:
        rate = stream.average_rate
        interval_us = round(1e6 / rate) if rate else None
        if stream.codec_context.name in REMUXED:
            segments = remuxed(_packets(container, stream), stream, self._options)
        else:
            stream.thread_type = "AUTO"
            segments = encoded(_pictures(container, stream), interval_us, self._options)
        first_us: int | None = None
        number = 0
        try:
            for segment in segments:
                number += 1
                name = f"{self._video.shown}#{number}"
                if segment.data is None:
                    why = segment.why or "it cannot be decoded without a key frame"
                    yield Unreadable(name, why)
                    continue
                if first_us is None:
                    first_us = segment.stamp_us or 0
                yield _frame(name, segment, segment.data, first_us, interval_us)
        except CaptureError as error:
            yield Unreadable(self._video.shown, str(error))


def _frame(
    name: str, segment: Segment, data: bytes, first_us: int, interval_us: int | None
) -> SourceFrame:
    at_us = max((segment.stamp_us or 0) - first_us, 0)
    return SourceFrame(
        name, Encoding.MP4, data, at_us / 1e6, interval_us,
        frames=segment.frames, lasts_us=segment.lasts_us,
    )  # fmt: skip


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError as error:
            raise CaptureError(f"ends early: {error.strerror}") from error
        if packet is None:
            return
        if packet.size:
            yield packet


def _pictures(container: InputContainer, stream: VideoStream) -> Iterator[Captured]:
    for found in decoded(container, stream):
        if not isinstance(found, VideoFrame):
            yield Captured(None, None, None, 0)
            continue
        stamp_us = None if found.pts is None else round(found.time * 1e6)
        yield Captured(found, stamp_us, None, 0)
