"""What a camera hands over, whichever way it is read."""

from __future__ import annotations

from dataclasses import dataclass

from av.video.frame import VideoFrame

from frameloom.draw import Picture
from schemas.errors import ConfigError, TransientError


class CaptureError(TransientError):
    """The camera cannot be reached, or stopped sending. Another try may succeed."""


class CaptureRefusedError(ConfigError):
    """The camera refuses the credentials. Another try could lock the account."""


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """One frame of a camera, before it is encoded.

    Attributes:
        picture: a decoded frame, a BGR picture, or a whole JPEG; None for one that could not be
            decoded.
        stamp_us: its time on the source's own clock, microseconds, or None.
        camera_us: the same as the camera's wall clock has it, Unix microseconds, or None.
        nbytes: of memory.
    """

    picture: VideoFrame | Picture | bytes | None
    stamp_us: int | None
    camera_us: int | None
    nbytes: int
