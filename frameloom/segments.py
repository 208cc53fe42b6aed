"""Video in pieces of a second or so, each an MP4 file that can be decoded alone.

H.264 and H.265 are cut at their key frames and packed anew without being decoded; anything else
is encoded as H.264.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import av
import av.error
import numpy as np
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from frameloom.capture import Captured, CaptureError
from frameloom.segment_cut import Cut, SegmentBounds, SegmentCutter

REMUXED = frozenset({"h264", "hevc"})
"""Codecs (FFmpeg's names) that are cut without being decoded."""

_MICROS = Fraction(1, 1_000_000)
_ENCODER = "libx264"
_ENCODER_OPTIONS = {"preset": "veryfast", "crf": "23", "bf": "0"}
_LONGEST_FRAME_US = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A finished piece of video.

    Attributes:
        data: an MP4 file, from time 0; None where the frames could not become one.
        frames: how many pictures are in it.
        stamp_us: the source's time of its first picture, microseconds, or None.
        camera_us: the same as the camera's wall clock has it, or None.
        lasts_us: from the first picture to the end of the last, microseconds.
        why: why there is no `data`; empty for frames before the first key frame.
    """

    data: bytes | None
    frames: int
    stamp_us: int | None = None
    camera_us: int | None = None
    lasts_us: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """How video is cut.

    Attributes:
        target_s: a segment's length, seconds; at least a group of pictures.
        bounds: of a segment.
    """

    target_s: float
    bounds: SegmentBounds


def remuxed(
    packets: Iterable[Packet[VideoStream]],
    stream: VideoStream,
    options: SegmentOptions,
    camera_us: Callable[[int | None], int | None] = lambda _: None,
) -> Iterator[Segment]:
    """Cut packets into segments without decoding them.

    Yields segments without data for what cannot be in one: frames before the first key frame,
    and those of a segment that grew over the limit.

    Args:
        packets: in decoding order, each with a decoding time.
        stream: theirs.
        options: how.
        camera_us: the camera's wall clock at a time of the stream.

    Raises:
        CaptureError: what `packets` raises, after the last segment.
    """
    cutter = SegmentCutter(options.target_s, options.bounds)
    base = stream.time_base or Fraction(1, 90_000)
    held: _Remux | None = None
    broke: CaptureError | None = None
    ahead = iter(packets)
    while True:
        try:
            packet = next(ahead, None)
        except CaptureError as error:
            packet, broke = None, error
        if packet is None:
            break
        stamp = packet.pts if packet.pts is not None else packet.dts
        at_s = float((stamp or 0) * base)
        match cutter.put(key=packet.is_keyframe, at_s=at_s, nbytes=packet.size):
            case Cut.BEGIN:
                if held is not None:
                    yield held.finish()
                held = _Remux(stream, base, camera_us(stamp))
                held.add(packet)
            case Cut.JOIN if held is not None:
                held.add(packet)
            case Cut.OVERFLOW if held is not None:
                yield Segment(None, held.frames + 1, why="too long without a key frame")
                held = None
            case _:
                yield Segment(None, 1)
    if held is not None:
        yield held.finish()
    if broke is not None:
        raise broke


def encoded(
    pictures: Iterable[Captured], interval_us: int | None, options: SegmentOptions
) -> Iterator[Segment]:
    """Encode pictures into segments (H.264).

    Args:
        pictures: in order; the size may change between them, and begins a segment.
        interval_us: the time between frames where it is known, microseconds.
        options: how.

    Raises:
        CaptureError: what `pictures` raises, after the last segment.
    """
    held: _Encode | None = None
    broke: CaptureError | None = None
    ahead = iter(pictures)
    while True:
        try:
            captured = next(ahead, None)
        except CaptureError as error:
            captured, broke = None, error
        if captured is None:
            break
        if captured.picture is None or isinstance(captured.picture, bytes):
            yield Segment(None, 1, why="a frame could not be decoded")
            continue
        frame = _frame(captured)
        if held is not None and held.ends_before(frame, captured.stamp_us, options):
            yield held.finish()
            held = None
        if held is None:
            held = _Encode(frame, captured, interval_us or 40_000)
        held.add(frame, captured.stamp_us)
    if held is not None:
        yield held.finish()
    if broke is not None:
        raise broke


class _Remux:
    """The open segment of packets that stay as they are."""

    def __init__(self, stream: VideoStream, base: Fraction, camera_us: int | None) -> None:
        self._stream = stream
        self._base = base
        self._camera_us = camera_us
        self._packets: list[Packet[VideoStream]] = []

    @property
    def frames(self) -> int:
        return len(self._packets)

    def add(self, packet: Packet[VideoStream]) -> None:
        self._packets.append(packet)

    def finish(self) -> Segment:
        packets = self._packets
        stamps = _shown_at(packets)
        first, last = min(stamps), max(stamps)
        step = packets[-1].duration or (last - first) // max(len(packets) - 1, 1)
        lasts_us = self._micros(last - first + step)
        try:
            data = self._muxed([stamp - first for stamp in stamps])
        except (av.error.FFmpegError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            return Segment(None, len(packets), why=f"cannot be packed: {why}")
        return Segment(data, len(packets), self._micros(first), self._camera_us, lasts_us)

    def _muxed(self, stamps: list[int]) -> bytes:
        # Cameras give no decoding times, and FFmpeg's guesses are off while it learns how frames
        # are reordered. The n-th packet is decoded no later than the n-th picture is shown, less
        # the longest lead that any packet has.
        in_order = sorted(stamps)
        lead = max(shown - stamp for shown, stamp in zip(in_order, stamps, strict=True))
        buffer = io.BytesIO()
        with av.open(buffer, "w", format="mp4") as container:
            track = container.add_stream_from_template(self._stream)
            for packet, stamp, shown in zip(self._packets, stamps, in_order, strict=True):
                packet.pts, packet.dts = stamp, shown - lead
                packet.stream = track
                container.mux(packet)
        return buffer.getvalue()

    def _micros(self, stamp: int) -> int:
        return round(stamp * self._base * 1_000_000)


def _shown_at(packets: list[Packet[VideoStream]]) -> list[int]:
    """When each packet's picture is shown; no two at once, which a file may not hold."""
    known = [packet.pts for packet in packets if packet.pts is not None]
    begin = min(known, default=0)
    step = max(packets[-1].duration or 1, 1)
    lacking = len(packets) - len(known)
    stamps: list[int] = []
    used: set[int] = set()
    for packet in packets:
        # Only an RTSP connection's first packets lack their time, and nothing comes before them.
        stamp = packet.pts
        if stamp is None:
            stamp, lacking = begin - step * lacking, lacking - 1
        while stamp in used:
            stamp += 1
        used.add(stamp)
        stamps.append(stamp)
    return stamps


class _Encode:
    """The open segment of pictures that are encoded here."""

    def __init__(self, frame: VideoFrame, first: Captured, interval_us: int) -> None:
        self._first = first
        self._interval_us = interval_us
        self._size = (frame.width, frame.height)
        self._frames = 0
        self._at_us = -interval_us
        self._buffer = io.BytesIO()
        self._container = av.open(self._buffer, "w", format="mp4")
        self._track = self._container.add_stream(
            _ENCODER, rate=Fraction(1_000_000, interval_us).limit_denominator(1001)
        )
        self._track.width, self._track.height = frame.width, frame.height
        self._track.pix_fmt = "yuv420p"
        self._track.options = dict(_ENCODER_OPTIONS)
        self._track.codec_context.time_base = _MICROS

    def ends_before(self, frame: VideoFrame, stamp_us: int | None, options: SegmentOptions) -> bool:
        """Whether the frame belongs to the next segment."""
        at_us = self._time_us(stamp_us)
        return (
            (frame.width, frame.height) != self._size
            or at_us >= options.target_s * 1e6 - 500
            or at_us > self._at_us + _LONGEST_FRAME_US + round(options.target_s * 1e6)
            or self._frames >= options.bounds.max_frames
            or self._buffer.tell() > options.bounds.max_bytes * 3 // 4
        )

    def add(self, frame: VideoFrame, stamp_us: int | None) -> None:
        self._at_us = self._time_us(stamp_us)
        frame.pts, frame.time_base = self._at_us, _MICROS
        self._frames += 1
        self._container.mux(self._track.encode(frame))

    def finish(self) -> Segment:
        try:
            self._container.mux(self._track.encode(None))
            self._container.close()
        except av.error.FFmpegError as error:
            return Segment(None, self._frames, why=f"cannot be encoded: {error.strerror}")
        return Segment(
            self._buffer.getvalue(), self._frames, self._first.stamp_us, self._first.camera_us,
            self._at_us + self._interval_us,
        )  # fmt: skip

    def _time_us(self, stamp_us: int | None) -> int:
        """The frame's time in the segment, later than the last one's."""
        if stamp_us is None or self._first.stamp_us is None:
            return self._at_us + self._interval_us
        return max(stamp_us - self._first.stamp_us, self._at_us + 1)


def _frame(captured: Captured) -> VideoFrame:
    """The picture as the encoder takes it: even sides, 4:2:0."""
    picture = captured.picture
    if not isinstance(picture, VideoFrame):
        picture = VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="bgr24")
    even = picture.reformat(
        max(picture.width & ~1, 2), max(picture.height & ~1, 2), format="yuv420p"
    )
    # A key frame of the source need not be one here.
    even.pict_type = 0
    return even
