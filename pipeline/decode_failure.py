"""What the decoders return and raise, in one place."""

from __future__ import annotations

import cv2

from schemas.errors import PoisonError, Reason, TransientError


def failure(detail: str) -> PoisonError:
    """The error for a picture that a decoder cannot take."""
    return PoisonError(Reason.DECODE_FAILED, detail, stage="decode")


def opencv_failure(error: cv2.error) -> PoisonError:
    """The error for a picture on which OpenCV raised.

    Raises:
        TransientError: memory ran out (by OpenCV's code), which is not the picture's fault.
    """
    if error.code == cv2.Error.StsNoMem:
        raise out_of_memory() from error
    return failure(f"OpenCV: {error.err}")


def out_of_memory() -> TransientError:
    """The error for a batch that ran out of memory."""
    return TransientError("out of memory while decoding pictures")
