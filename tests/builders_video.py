"""Small videos with the times that a test asks for."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np


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
