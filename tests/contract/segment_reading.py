"""Everything there is of a segment of video, read through the port."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.decode_segment import PyAvSegments
from pipeline.ports import SegmentReader
from pipeline.segment import Sampling, SegmentFrame, SegmentLimits
from schemas.errors import PoisonError
from schemas.frame import Encoding, FrameMessage

LIMITS = SegmentLimits(max_pixels=1_000_000, max_frames=100, max_us=10_000_000)


@dataclass
class Read:
    frames: list[SegmentFrame] = field(default_factory=list[SegmentFrame])
    error: PoisonError | None = None

    @property
    def indices(self) -> list[int]:
        return [frame.index for frame in self.frames]

    @property
    def offsets_ms(self) -> list[int]:
        return [frame.offset_us // 1000 for frame in self.frames]


def a_message(data: bytes, encoding: str, interval_us: int | None = None) -> FrameMessage:
    return FrameMessage(
        stream_id="s", seq=0, captured_at_us=0, encoding=Encoding(encoding), data=memoryview(data),
        interval_us=interval_us,
    )  # fmt: skip


def read(
    data: bytes,
    encoding: str = "mp4",
    sampling: Sampling | None = None,
    *,
    limits: SegmentLimits = LIMITS,
    interval_us: int | None = None,
) -> Read:
    """Everything there is of a segment."""
    found = Read()
    reader: SegmentReader | None = None
    try:
        message = a_message(data, encoding, interval_us)
        reader = PyAvSegments(limits).open(message, sampling or Sampling())
        while not (found.frames and found.frames[-1].last):
            frame = reader.step()
            if frame is not None:
                found.frames.append(frame)
    except PoisonError as error:
        found.error = error
    finally:
        if reader is not None:
            reader.close()
    assert found.error is None or found.error.stage == "segment"
    assert [f.last for f in found.frames] == [False] * (len(found.frames) - 1) + [
        found.error is None
    ] * bool(found.frames)
    return found
