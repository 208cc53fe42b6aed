"""A segment that is open, decoded step by step with PyAV, one frame ahead of what is asked for.

At the first damage the segment ends: what was decoded before it is good, what comes after leans on
what is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction

import av
import av.error
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from pipeline.segment import Sampler, SegmentFrame, SegmentLimits
from pipeline.segment_ends import missing_bytes
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding, FrameMessage

DEFAULT_INTERVAL_US = 40_000
"""Of a stream without time stamps that states no rate: 25 frames per second."""
RGB_BYTES = 3
PLENTY_BYTES = 256 * 1024 * 1024
"""More than the tables of a record's worth of video, or one of its frames, take."""
_SCANTY = 0.9
"""A Matroska file whose packets make up less of it than this, and that ends before it should, was
damaged in between: its reader passes over what it cannot read without a word."""


class PyAvReader:
    """An open segment. Implements the `SegmentReader` port."""

    def __init__(
        self,
        container: InputContainer,
        stream: VideoStream,
        segment: FrameMessage,
        limits: SegmentLimits,
        sampler: Sampler,
    ) -> None:
        self._container = container
        self._stream = stream
        self._segment = segment
        self._limits = limits
        self._sampler = sampler
        self._packets: Iterator[Packet[VideoStream]] = container.demux(stream)
        self._decoded: deque[VideoFrame] = deque()
        self._ahead: tuple[VideoFrame, int, int] | None = None
        """The latest sampled frame: held back until it is known whether it is the last."""
        self._ended = False
        self._fault: PoisonError | None = None
        self._frames = self._read_packets = self._read_bytes = 0
        self._first_pts: int | None = None
        self._time_base = stream.time_base or Fraction(1, 1_000_000)
        self._offset_us = 0
        self._check_size(stream.codec_context.width, stream.codec_context.height)

    @property
    def frame_bytes(self) -> int:
        """See `SegmentReader.frame_bytes`."""
        shown = self._ahead[0] if self._ahead else self._stream.codec_context
        return shown.width * shown.height * RGB_BYTES

    def step(self) -> SegmentFrame | None:
        """See `SegmentReader.step`."""
        if self._decoded:
            return self._look_at(self._decoded.popleft())
        if not self._ended:
            self._decode_packet()
            return None
        if self._ahead is not None:
            return self._show(last=self._fault is None)
        raise self._fault or damaged("holds no frame that can be decoded")

    def close(self) -> None:
        """See `SegmentReader.close`."""
        self._decoded.clear()
        self._ahead = None
        self._container.close()

    def _look_at(self, frame: VideoFrame) -> SegmentFrame | None:
        index, offset_us = self._frames, self._offset_of(frame)
        fault = self._fault_of(frame, index, offset_us)
        if fault is not None:
            self._break(fault)
            self._decoded.clear()
            return None
        self._frames += 1
        self._offset_us = offset_us
        if not self._sampler.takes(index, offset_us):
            return None
        shown = self._show(last=False) if self._ahead is not None else None
        self._ahead = (frame, index, offset_us)
        return shown

    def _fault_of(self, frame: VideoFrame, index: int, offset_us: int) -> PoisonError | None:
        if frame.is_corrupt:
            return damaged(f"is damaged after frame {index}")
        if index >= self._limits.max_frames:
            return too_long(
                f"has more than {self._limits.max_frames} frames (limits.max_segment_frames)"
            )
        if offset_us > self._limits.max_us:
            return too_long(
                f"lasts longer than {self._limits.max_us // 1000} ms (limits.max_segment_ms)"
            )
        try:
            self._check_size(frame.width, frame.height)
        except PoisonError as error:
            return error
        return None

    def _offset_of(self, frame: VideoFrame) -> int:
        """Microseconds since the first frame, never less than the frame before. A frame without a
        time stamp follows its predecessor by the interval."""
        if self._frames == 0:
            self._first_pts = frame.pts
            return 0
        if frame.pts is None or self._first_pts is None:
            return self._offset_us + self._interval_us()
        # The stream's time base: frames that are flushed out carry none of their own.
        span_us = (frame.pts - self._first_pts) * self._time_base * 1_000_000
        return max(round(span_us), self._offset_us)

    def _interval_us(self) -> int:
        if self._segment.interval_us is not None:
            return self._segment.interval_us
        rate = self._stream.codec_context.framerate or self._stream.average_rate
        return max(round(1e6 / rate), 1) if rate and rate > 0 else DEFAULT_INTERVAL_US

    def _decode_packet(self) -> None:
        try:
            packet = next(self._packets, None)
            if packet is None:
                self._end()
                return
            if packet.is_corrupt:
                self._break(damaged(f"is cut short or damaged after {self._read_bytes} bytes"))
                return
            self._read_packets += packet.size > 0
            self._read_bytes += packet.size
            self._decoded.extend(packet.decode())
        except av.error.EOFError:
            self._end()
        except av.error.MemoryError as error:
            self._break(asks_too_much(error))
        except av.error.FFmpegError as error:
            self._break(self._decoding_fault(error))

    def _decoding_fault(self, error: av.error.FFmpegError) -> PoisonError:
        context = self._stream.codec_context
        try:
            self._check_size(context.width, context.height)
        except PoisonError as fault:
            return fault
        return damaged(f"cannot be decoded from frame {self._frames} on: {text_of(error)}")

    def _end(self) -> None:
        """Every packet was read. What the container says may still deny that this is the end."""
        self._ended = True
        stated = self._stream.frames
        lacking = missing_bytes(self._segment.data, self._segment.encoding)
        if lacking:
            self._fault = damaged(f"is cut short: it lacks {lacking} bytes by its own word")
        elif self._segment.encoding is Encoding.MP4 and self._read_packets < stated:
            self._fault = damaged(f"states {stated} frames and holds {self._read_packets}")
        elif self._segment.encoding is Encoding.MKV and self._has_gaps():
            self._fault = damaged("has a damaged part that holds no frame any more")

    def _has_gaps(self) -> bool:
        duration_us, data = self._container.duration, self._segment.data
        if duration_us is None or len(self._container.streams) > 1 or not self._read_packets:
            return False
        early_us = duration_us - self._offset_us - 2 * self._interval_us()
        return early_us > 0 and self._read_bytes < _SCANTY * len(data)

    def _break(self, fault: PoisonError) -> None:
        """Nothing more is read; what the codec holds of the packets before is still good."""
        if self._ended:
            self._fault = self._fault or fault
            return
        self._ended, self._fault = True, fault
        try:
            self._decoded.extend(self._stream.codec_context.decode(None))
        except av.error.FFmpegError:
            return

    def _show(self, *, last: bool) -> SegmentFrame:
        held, self._ahead = self._ahead, None
        if held is None:
            raise RuntimeError("no frame is held back")
        frame, index, offset_us = held
        pixels = frame.to_ndarray(format="rgb24")
        # PyAV gives the angle counterclockwise, and so does numpy turn.
        turns = round(frame.rotation / 90) % 4
        pixels = np.ascontiguousarray(np.rot90(pixels, turns) if turns else pixels)
        height, width = pixels.shape[:2]
        return SegmentFrame(index, offset_us, width, height, pixels.data.cast("B"), last)

    def _check_size(self, width: int, height: int) -> None:
        limit = self._limits.max_pixels
        if width < 1 or height < 1:
            code, detail = Reason.ZERO_SIZE, f"the segment's frames are {width}×{height} pixels"
        elif width * height > limit:
            code = Reason.TOO_MANY_PIXELS
            detail = f"the segment's frames are {width}×{height} pixels, the limit {limit}"
        else:
            return
        raise PoisonError(code, detail, stage="segment")


def text_of(error: Exception) -> str:
    """FFmpeg's words, without the address of what it was reading."""
    return getattr(error, "strerror", None) or str(error)


def damaged(what: str) -> PoisonError:
    """DECODE_FAILED of a segment that does `what`."""
    return PoisonError(Reason.DECODE_FAILED, f"the segment {what}", stage="segment")


def asks_too_much(error: MemoryError) -> PoisonError:
    """FFmpeg was refused memory. Where the process can still have more than an honest segment makes
    it ask for at once, it is this segment that asked for the impossible.

    Raises:
        MemoryError: there is none for anybody: `error`.
    """
    try:
        # Not touched, so it costs address space alone; as much is refused where limits are near.
        bytearray(PLENTY_BYTES)
    except MemoryError:
        raise error from None
    return damaged("has a field that asks for more memory than there can be")


def too_long(what: str) -> PoisonError:
    """SEGMENT_TOO_LONG of a segment that does `what`."""
    return PoisonError(Reason.SEGMENT_TOO_LONG, f"the segment {what}", stage="segment")
