"""AVIF pictures, by OpenCV."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from pipeline.place import Pixels

_FLAGS = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION


def decode_avif(data: memoryview) -> Pixels | None:
    """Stored pixels, RGB; None if OpenCV cannot.

    OpenCV 5.0 gives blue first, also when asked for red first, where there is alpha: so it is asked
    for that.
    """
    pixels = cast("Pixels | None", cv2.imdecode(np.frombuffer(data, np.uint8), _FLAGS))
    return None if pixels is None else cast("Pixels", cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
