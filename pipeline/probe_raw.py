"""Reads a raw frame's size: its producer states it, and every byte must account for it."""

from __future__ import annotations

from pipeline.item import Header
from pipeline.probe_refusal import refusal
from schemas.errors import Reason
from schemas.frame import FrameMessage
from schemas.raw import raw_fault


def read_raw(frame: FrameMessage) -> Header:
    """The header that a raw frame does not have.

    The codec has checked what came from a record; frames made here (of a video, say) come by no
    codec, and decoders shape memory by these numbers.

    Raises:
        PoisonError: ENCODING_MISMATCH.
    """
    fault = raw_fault(frame.encoding, frame.width, frame.height, frame.data.nbytes)
    if fault is not None or frame.width is None or frame.height is None:
        raise refusal(Reason.ENCODING_MISMATCH, fault or "a raw frame needs width and height")
    return Header(frame.encoding, frame.width, frame.height)
