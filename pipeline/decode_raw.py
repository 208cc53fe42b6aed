"""Raw frames into rows: nothing to decode, the letterbox of every other picture.

The bytes are read where they were received. Channels are swapped and grey is spread after the
resize: the row is the same, and as a rule the bucket is smaller than the picture.
"""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np

from pipeline.decode_failure import failure
from pipeline.item import Item
from pipeline.place import Pixels, place
from schemas.errors import PoisonError
from schemas.frame import Encoding
from schemas.raw import raw_fault


def place_raw(item: Item, row: Pixels) -> PoisonError | None:
    """Put a raw frame into its place in `row`, as RGB; why it cannot be done, if it cannot.

    NV12 is read as OpenCV reads it: ITU-R BT.601, luma 16 to 235.

    Args:
        item: of a raw encoding; `item.header` is what its bytes must account for.
        row: uint8, shape (height, width, 3), written in full.
    """
    header, flat = item.header, np.frombuffer(item.frame.data, np.uint8)
    height, width = header.coded_height, header.coded_width
    fault = raw_fault(header.encoding, width, height, flat.size)
    if fault is not None:
        return failure(fault)
    if header.encoding is Encoding.RGB24:
        place(flat.reshape(height, width, 3), item.geometry, row)
    elif header.encoding is Encoding.BGR24:
        placed = np.empty_like(row)
        place(flat.reshape(height, width, 3), item.geometry, placed)
        cv2.cvtColor(placed, cv2.COLOR_BGR2RGB, dst=row)
    elif header.encoding is Encoding.GRAY8:
        placed = np.empty_like(row, shape=row.shape[:2])
        place(flat.reshape(height, width), item.geometry, placed)
        cv2.cvtColor(placed, cv2.COLOR_GRAY2RGB, dst=row)
    else:
        planes = flat.reshape(height * 3 // 2, width)
        pixels = cv2.cvtColor(planes, cv2.COLOR_YUV2RGB_NV12)
        place(cast("Pixels", pixels), item.geometry, row)
    return None
