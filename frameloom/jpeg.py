"""Pictures as JPEG."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np
from av.video.frame import VideoFrame

from frameloom.draw import Picture


def encode_jpeg(picture: Picture, quality: int) -> bytes:
    """A BGR picture as JPEG of `quality` 1..100.

    Raises:
        ValueError: a shape that JPEG cannot hold.
    """
    done, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise ValueError(f"a picture of shape {picture.shape} cannot be encoded as JPEG")
    return data.tobytes()


def upright(frame: VideoFrame) -> Picture:
    """A decoded frame as BGR, turned as its display matrix says."""
    picture = cast("Picture", frame.to_ndarray(format="bgr24"))
    quarter_turns = round(frame.rotation / 90) % 4
    if quarter_turns:
        picture = np.ascontiguousarray(np.rot90(picture, quarter_turns))
    return picture


def camera_jpeg(picture: VideoFrame | Picture | bytes, quality: int, *, as_it_is: bool) -> bytes:
    """What a camera gave, as JPEG of `quality` 1..100.

    Args:
        picture: decoded, or a JPEG.
        quality: of what is encoded here.
        as_it_is: send a camera's own JPEG byte by byte.

    Raises:
        ValueError: a JPEG that cannot be decoded, or a picture too large for one.
    """
    if isinstance(picture, VideoFrame):
        return encode_jpeg(upright(picture), quality)
    if not isinstance(picture, bytes):
        return encode_jpeg(picture, quality)
    if as_it_is:
        return picture
    decoded = cv2.imdecode(np.frombuffer(picture, np.uint8), cv2.IMREAD_COLOR)
    if decoded is None:
        raise ValueError("not a JPEG")
    return encode_jpeg(cast("Picture", decoded), quality)
