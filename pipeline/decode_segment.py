"""Segments of video opened with PyAV (FFmpeg), to be read one frame at a time.

Nothing is believed that a segment says of itself. The demuxer is the one that the producer named,
it reads from memory alone and opens nothing else; codecs are those of a list; the decoder refuses
a picture of more than the limit's pixels before it allocates it.
"""

from __future__ import annotations

import io
import logging
from typing import NoReturn

import av
import av.error
from av.codec import Codec
from av.codec.hwaccel import HWAccel
from av.container import InputContainer
from av.video.stream import VideoStream

from pipeline.segment import Sampler, Sampling, SegmentLimits
from pipeline.segment_reader import PyAvReader, asks_too_much, damaged, text_of
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
        except av.error.MemoryError as error:
            raise asks_too_much(error) from error
        except (av.error.FFmpegError, ValueError, OSError) as error:
            raise damaged(f"cannot be opened: {text_of(error)}") from error

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
