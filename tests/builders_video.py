"""Small videos with the times that a test asks for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream


def a_video(path: Path, stamps_ms: list[int], *, rate: int = 10) -> Path:
    """Frames of rising grey at the given times."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.time_base = Fraction(1, 1000)
        for i, stamp in enumerate(stamps_ms):
            frame = av.VideoFrame.from_ndarray(
                np.full((48, 64, 3), 20 + 10 * i, np.uint8), format="bgr24"
            )
            frame.pts, frame.time_base = stamp, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


_MUXERS = {"mp4": "mp4", "mkv": "matroska", "ts": "mpegts", "h264": "h264", "h265": "hevc"}


def a_segment(
    encoding: str = "mp4",
    frames: int = 6,
    *,
    size: tuple[int, int] = (64, 48),
    rate: int = 10,
    codec: str | None = None,
    stamps: Sequence[int] | None = None,
    mux: dict[str, str] | None = None,
    b_frames: int = 0,
) -> bytes:
    """A segment of noise that drifts, one group of pictures. `size` is width, height; `stamps` are
    presentation times in units of 1/`rate` seconds, 0, 1, 2 ... where None."""
    buffer = io.BytesIO()
    width, height = size
    name = codec or ("libx265" if encoding == "h265" else "libx264")
    options = {"preset": "ultrafast", "bf": str(b_frames), "threads": "1"}
    if name == "libx265":
        # Blocks that fit the picture: with larger ones x265 aborts the process now and then.
        quiet = "log-level=none:pools=1:bframes=0:ctu=16:min-cu-size=8"
        options = {"preset": "ultrafast", "x265-params": quiet}
    with av.open(buffer, "w", format=_MUXERS[encoding], options=mux or {}) as container:
        stream = container.add_stream(name, rate=rate, options=options if "lib" in name else {})
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, rate)
        noise = np.random.default_rng(1).integers(0, 255, (height, width, 3), dtype=np.uint8)
        for number, pts in enumerate(range(frames) if stamps is None else stamps):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, 2 * number, axis=1), format="rgb24")
            frame.pts, frame.time_base = pts, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def a_sound(encoding: str = "mp4") -> bytes:
    """A segment without video."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=_MUXERS[encoding]) as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        for number in range(4):
            frame = av.AudioFrame.from_ndarray(
                np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
            )
            frame.sample_rate, frame.pts = 8000, 1024 * number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def an_h264_video(path: Path, *, frames: int, fps: int, key_every: int) -> Path:
    """Frames of grey that rises and begins anew every 79, H.264, with a key frame every so many and
    others out of order between them."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.gop_size = key_every
        stream.options = {"preset": "ultrafast", "bf": "2", "x264-params": "scenecut=0"}
        for i in range(frames):
            frame = av.VideoFrame.from_ndarray(
                np.full((48, 64, 3), 20 + 3 * i % 236, np.uint8), format="bgr24"
            )
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path
