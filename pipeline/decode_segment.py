"""Segments of video into frames with PyAV (FFmpeg), one frame at a time.

Nothing is believed that a segment says of itself. The demuxer is the one that the producer named,
it reads from memory alone and opens nothing else; codecs are those of a list; the decoder refuses
a picture of more than the limit's pixels before it allocates it. At the first damage the segment
ends: what was decoded before it is good, what comes after leans on what is missing.
"""

from __future__ import annotations

import io
import logging
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import NoReturn

import av
import av.error
import numpy as np
from av.codec import Codec
from av.codec.hwaccel import HWAccel
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from pipeline.segment import Sampler, Sampling, SegmentFrame, SegmentLimits
from pipeline.segment_ends import missing_bytes
from schemas.errors import PoisonError, Reason
from schemas.frame import Encoding, FrameMessage

log = logging.getLogger(__name__)

_DEMUXERS = {
    Encoding.MP4: "mov",
    Encoding.MKV: "matroska",
    Encoding.TS: "mpegts",
    Encoding.H264: "h264",
    Encoding.H265: "hevc",
}
_DECODERS = frozenset({"h264", "hevc", "mpeg4", "vp8", "vp9", "av1", "libdav1d"})
"""By FFmpeg's names. Few, because each is code that strangers' bytes run through."""

DEFAULT_INTERVAL_US = 40_000
"""Of a stream without time stamps that states no rate: 25 frames per second."""
RGB_BYTES = 3
_SCANTY = 0.9
"""A Matroska file whose packets make up less of it than this, and that ends before it should, was
damaged in between: its reader passes over what it cannot read without a word."""


class PyAvSegments:
    """Opens segments with PyAV. For one thread; implements the `SegmentDecoder` port.

    Args:
        limits: what a segment may be.
        threads: inside the codec, ≥ 1.
        hardware: `nvdec`: decode on the GPU where driver and codec allow it, else on the CPU.
    """

    def __init__(self, limits: SegmentLimits, *, threads: int = 1, hardware: str = "cpu") -> None:
        self._limits = limits
        self._threads = threads
        self._hardware = "cpu" if hardware == "nvdec" and not _finds_gpu() else hardware

    @property
    def name(self) -> str:
        return f"pyav-{self._hardware}"

    def open(self, segment: FrameMessage, sampling: Sampling) -> PyAvReader:
        """See `SegmentDecoder.open`."""
        _check_marks(segment)
        container = self._container(segment)
        try:
            stream = self._stream(container)
            return PyAvReader(container, stream, segment, self._limits, Sampler(sampling))
        except BaseException:
            container.close()
            raise

    def _container(self, segment: FrameMessage) -> InputContainer:
        options = {
            "codec_whitelist": ",".join(sorted(_DECODERS)),
            # Also for the decoders that opening sets up to learn of the streams.
            "max_pixels": str(self._limits.max_pixels),
            "threads": "1",
        }
        # Of codecs that the GPU does not know, the CPU takes care.
        hardware = _cuda() if self._hardware == "nvdec" else None
        try:
            return av.open(
                _View(segment.data),
                mode="r",
                format=_DEMUXERS[segment.encoding],
                options=options,
                hwaccel=hardware,
                io_open=_open_nothing,
            )
        except av.error.MemoryError:
            raise
        except (av.error.FFmpegError, ValueError, OSError) as error:
            raise _poison(f"cannot be opened: {_text(error)}") from error

    def _stream(self, container: InputContainer) -> VideoStream:
        known: list[str] = []
        for stream in container.streams.video:
            # A stream whose codec FFmpeg does not decode has no context, whatever its type says.
            name = stream.codec_context.name if stream.codec_context else "unknown"
            known.append(name)
            if name in _DECODERS:
                context = stream.codec_context
                context.options = {"max_pixels": str(self._limits.max_pixels)}
                context.thread_count = self._threads
                return stream
        raise PoisonError(
            Reason.UNSUPPORTED_ENCODING,
            f"the segment holds video of no codec that is decoded: {', '.join(known)}"
            if known
            else "the segment holds no video",
            stage="segment",
        )


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
        raise self._fault or _poison("holds no frame that can be decoded")

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
            return _poison(f"is damaged after frame {index}")
        if index >= self._limits.max_frames:
            return _too_long(
                f"has more than {self._limits.max_frames} frames (limits.max_segment_frames)"
            )
        if offset_us > self._limits.max_us:
            return _too_long(
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
                self._break(_poison(f"is cut short or damaged after {self._read_bytes} bytes"))
                return
            self._read_packets += packet.size > 0
            self._read_bytes += packet.size
            self._decoded.extend(packet.decode())
        except av.error.EOFError:
            self._end()
        except av.error.MemoryError:
            raise
        except av.error.FFmpegError as error:
            self._break(self._decoding_fault(error))

    def _decoding_fault(self, error: av.error.FFmpegError) -> PoisonError:
        context = self._stream.codec_context
        try:
            self._check_size(context.width, context.height)
        except PoisonError as fault:
            return fault
        return _poison(f"cannot be decoded from frame {self._frames} on: {_text(error)}")

    def _end(self) -> None:
        """Every packet was read. What the container says may still deny that this is the end."""
        self._ended = True
        stated = self._stream.frames
        lacking = missing_bytes(self._segment.data, self._segment.encoding)
        if lacking:
            self._fault = _poison(f"is cut short: it lacks {lacking} bytes by its own word")
        elif self._segment.encoding is Encoding.MP4 and self._read_packets < stated:
            self._fault = _poison(f"states {stated} frames and holds {self._read_packets}")
        elif self._segment.encoding is Encoding.MKV and self._has_gaps():
            self._fault = _poison("has a damaged part that holds no frame any more")

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


class _View(io.RawIOBase):
    """A record's bytes as a file to read, without copying them whole."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = len(self._data) if size < 0 else self._at + size
        chunk = bytes(self._data[self._at : end])
        self._at += len(chunk)
        return chunk


def _check_marks(segment: FrameMessage) -> None:
    """A demuxer that is told its format believes it, and looks for a beginning as far as it takes.

    Raises:
        PoisonError: ENCODING_MISMATCH.
    """
    head, encoding = bytes(segment.data[:12]), segment.encoding
    good = {
        Encoding.MP4: head[4:8] in (b"ftyp", b"styp", b"moov", b"moof", b"mdat", b"free", b"sidx"),
        Encoding.MKV: head.startswith(b"\x1aE\xdf\xa3"),
        Encoding.TS: head.startswith(b"G") and bytes(segment.data[188:189]) == b"G",
    }.get(encoding, head.startswith((b"\0\0\1", b"\0\0\0\1")))
    if not good:
        raise PoisonError(
            Reason.ENCODING_MISMATCH,
            f"the frame says {encoding.value}, its bytes begin with {head.hex(' ')}",
            stage="segment",
        )


def _cuda() -> HWAccel:
    return HWAccel("cuda", allow_software_fallback=True)


def _finds_gpu() -> bool:
    """Whether FFmpeg can use a GPU. Without one it would refuse every segment instead."""
    try:
        _cuda().create(Codec("h264", "r"))
    except (av.error.FFmpegError, ValueError, OSError) as error:
        log.warning("segments are decoded on the CPU, NVDEC is not to be had: %s", error)
        return False
    return True


def _open_nothing(*_: object) -> NoReturn:
    """In place of FFmpeg's own opening: a segment may name files and addresses."""
    raise PermissionError("a segment may not open anything else")


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _poison(what: str) -> PoisonError:
    return PoisonError(Reason.DECODE_FAILED, f"the segment {what}", stage="segment")


def _too_long(what: str) -> PoisonError:
    return PoisonError(Reason.SEGMENT_TOO_LONG, f"the segment {what}", stage="segment")
