"""One frame of a segment of video as a picture, for drawing on it."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from frameloom.draw import Picture
from pipeline.decode_segment import PyAvSegments
from pipeline.segment import Sampling, SegmentLimits
from schemas.errors import PoisonError, Reason
from schemas.frame import FrameMessage
from schemas.settings import LimitSettings


def frame_picture(segment: FrameMessage, index: int, limits: LimitSettings) -> Picture:
    """The frame shown in place `index`, from 0, as BGR. Everything before it is decoded, too.

    Raises:
        PoisonError: the segment has no such frame, or none that can be decoded.
    """
    bounds = SegmentLimits(
        limits.max_pixels, limits.max_segment_frames, limits.max_segment_ms * 1_000
    )
    # Of what comes before it, only the first frame is turned into pixels.
    reader = PyAvSegments(bounds).open(segment, Sampling(every=max(index, 1)))
    try:
        while True:
            frame = reader.step()
            if frame is None:
                continue
            if frame.index == index:
                pixels = np.frombuffer(frame.pixels, np.uint8)
                rgb = pixels.reshape(frame.height, frame.width, 3)
                return cast("Picture", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
            if frame.last:
                raise PoisonError(
                    Reason.DECODE_FAILED, f"the segment has no frame {index}", stage="segment"
                )
    finally:
        reader.close()
