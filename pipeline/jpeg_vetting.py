"""What a JPEG must be before a decoder other than OpenCV sees it."""

from __future__ import annotations

import cv2

from pipeline.decode_failure import failure, opencv_failure
from pipeline.jpeg_repair import repaired
from pipeline.probe_jpeg import jpeg_components
from schemas.errors import PoisonError


def vetted_jpeg(data: memoryview) -> memoryview | bytes | PoisonError:
    """The bytes to decode, repaired where they need it, or why they belong to the next decoder.

    CMYK: without Adobe's marker other decoders show the negative of what OpenCV shows.
    """
    try:
        if jpeg_components(data) == 4:
            return failure("CMYK is left to the next decoder")
    except PoisonError as error:
        return failure(error.detail)
    try:
        return repaired(data) or failure("the JPEG is cut short")
    except cv2.error as error:
        return opencv_failure(error)
