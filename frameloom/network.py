"""One connection to a network camera, through FFmpeg (PyAV): its packets, or its pictures."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import av
import av.error
from av.container import InputContainer
from av.format import Flags
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from frameloom.address import masked
from frameloom.capture import Captured, CaptureError, CaptureRefusedError
from frameloom.segments import REMUXED

_REFUSED = (av.error.HTTPUnauthorizedError, av.error.HTTPForbiddenError)
_HELD_PACKETS = 32
"""The first packets of an RTSP connection may lack a time; they get it from the next ones."""
_OPEN_OPTIONS = {"fpsprobesize": "2"}
"""FFmpeg reads twenty frames before it opens a stream, to measure its rate; they would arrive in
a burst, 0.8 s late."""
_HUFFMAN_TABLE = b"\xff\xc4"


@dataclass(frozen=True, slots=True)
class NetworkOptions:
    """How a network camera is read.

    Attributes:
        timeout_s: for opening, and for every packet after that: a camera that is dead without
            saying so is connected to again.
        rtsp_transport: `tcp` or `udp`.
    """

    timeout_s: float = 10.0
    rtsp_transport: str = "tcp"


class NetworkConnection:
    """An open connection. Use as a context manager, from one thread.

    Raises:
        CaptureRefusedError: the camera wants other credentials.
        CaptureError: it cannot be reached, or sends no video.
    """

    def __init__(self, url: str, options: NetworkOptions) -> None:
        scheme = url.partition("://")[0].lower()
        extra = dict(_OPEN_OPTIONS)
        if scheme.startswith("rtsp"):
            extra["rtsp_transport"] = options.rtsp_transport
        self._timeout_s = options.timeout_s
        began = time.monotonic()
        try:
            self._container: InputContainer = av.open(
                url, options=extra, timeout=(options.timeout_s, options.timeout_s)
            )
        except _REFUSED as error:
            raise CaptureRefusedError(error.strerror or "credentials refused") from error
        except (av.error.FFmpegError, OSError, ValueError) as error:
            # What is cut off in RTSP's first exchange passes for invalid data in FFmpeg.
            silent = time.monotonic() - began >= options.timeout_s
            raise CaptureError(self._silence if silent else self._why(error)) from error
        if not self._container.streams.video:
            self._container.close()
            raise CaptureError("it sends no video")
        self._stream: VideoStream = self._container.streams.video[0]
        self._stream.thread_type = "SLICE"  # frame threads would hold frames back
        self._camera: tuple[int, int] | None = None
        # MJPEG over HTTP and raw H.264 carry no times. FFmpeg makes some up, 25 a second whatever
        # the camera's rate, and they would run away from the clock.
        self._untimed = bool(self._container.format.flags & Flags.no_timestamps.value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._container.close()

    @property
    def stream(self) -> VideoStream:
        """The video track, as a template for segments."""
        return self._stream

    @property
    def remuxed(self) -> bool:
        """Whether its packets can go into segments as they are."""
        return self._stream.codec_context.name in REMUXED

    @property
    def interval_us(self) -> int | None:
        """The time between frames that the source declares, microseconds, or None."""
        if self._untimed:
            return None
        rate = self._stream.average_rate or self._stream.guessed_rate
        return round(1e6 / rate) if rate and 0 < rate <= 1000 else None

    def packets(self) -> Iterator[Packet[VideoStream]]:
        """Packets in decoding order, each with a decoding time, until the source ends.

        Raises:
            CaptureError: the connection is lost or silent.
        """
        held: list[Packet[VideoStream]] = []
        packets = self._container.demux(self._stream)
        while True:
            try:
                packet = next(packets, None)
            except (av.error.FFmpegError, OSError) as error:
                raise CaptureError(self._why(error)) from error
            if packet is None:
                return
            if packet.size == 0:
                continue
            if packet.dts is None:
                packet.dts = packet.pts
            if packet.dts is None:
                held.append(packet)
                if len(held) > _HELD_PACKETS:
                    raise CaptureError("its packets carry no times")
                continue
            self._look_at_clock(packet)
            yield from _timed(held, packet, packet.dts)
            held.clear()
            yield packet

    def pictures(self, *, decoded: bool = False) -> Iterator[Captured]:
        """Frames in presentation order; JPEG ones as the camera made them, unless `decoded`.

        Raises:
            CaptureError: the connection is lost or silent.
        """
        as_they_are = self._stream.codec_context.name == "mjpeg" and not decoded
        for packet in self.packets():
            if as_they_are and _HUFFMAN_TABLE in (data := bytes(packet)):
                stamp_us = self._stamp_us(packet.pts)
                yield Captured(data, stamp_us, self.camera_us(packet.pts), len(data))
                continue
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                # A damaged packet costs its own frames; whatever comes next is tried.
                yield Captured(None, None, None, 0)
                continue
            yield from map(self._captured, frames)

    def micros(self, stamp: int | None) -> int | None:
        """A time of the track in microseconds."""
        base = self._stream.time_base
        return None if stamp is None or base is None else round(stamp * base * 1_000_000)

    def camera_us(self, stamp: int | None) -> int | None:
        """When the camera says it captured the frame of this time, Unix microseconds; None where
        it does not say."""
        at_us = self.micros(stamp)
        if self._camera is None or at_us is None:
            return None
        stamp_us, camera_us = self._camera
        return camera_us + at_us - stamp_us

    def _captured(self, frame: VideoFrame) -> Captured:
        nbytes = sum(plane.buffer_size for plane in frame.planes)
        # An RTSP connection's first frame has no time of its own; when it was decoded is near.
        stamp = frame.pts if frame.pts is not None else frame.dts
        return Captured(frame, self._stamp_us(stamp), self.camera_us(stamp), nbytes)

    def _stamp_us(self, stamp: int | None) -> int | None:
        """When a picture was captured, on the source's clock; without one, when it arrived."""
        return time.monotonic_ns() // 1000 if self._untimed else self.micros(stamp)

    def _look_at_clock(self, packet: Packet[VideoStream]) -> None:
        """Keep the latest pair of times: FFmpeg ties RTP times to RTCP's sender reports."""
        stamp_us = self.micros(packet.pts)
        if stamp_us is not None and packet.has_sidedata("prft"):
            data = bytes(packet.get_sidedata("prft"))
            if len(data) >= 8:
                self._camera = (stamp_us, struct.unpack_from("=q", data)[0])

    @property
    def _silence(self) -> str:
        return f"no answer in {self._timeout_s:g} s"

    def _why(self, error: BaseException) -> str:
        if isinstance(error, av.error.ExitError):
            return self._silence
        return masked(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _timed(
    held: list[Packet[VideoStream]], packet: Packet[VideoStream], dts: int
) -> Iterator[Packet[VideoStream]]:
    """The held packets, with decoding times that lead up to `packet`'s, the first known one. When
    they are to be shown stays unknown."""
    step = packet.duration or 1
    for i, each in enumerate(held):
        each.dts = dts - step * (len(held) - i)
        yield each
