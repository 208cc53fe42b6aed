"""Damaged segments through FFmpeg: good frames and an end with a reason, whatever the bytes."""

from __future__ import annotations

import functools
from random import Random

import pytest

from pipeline.segment import SegmentLimits
from schemas.frame import SEGMENT_ENCODINGS
from tests.builders_video import a_segment
from tests.contract.segment_reading import read
from tests.fuzz.mutate_plain import plain

INPUTS = 40
"""Of each container; the long runs are `make fuzz`."""
LIMITS = SegmentLimits(max_pixels=200_000, max_frames=50, max_us=10_000_000)


@functools.cache
def a_whole_one(encoding: str) -> bytes:
    return a_segment(encoding, 5, b_frames=1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("encoding", sorted(SEGMENT_ENCODINGS))
def test_damaged_segments_end_with_a_reason(encoding: str, seed: int) -> None:
    rng = Random(seed)
    for _ in range(INPUTS):
        data = a_whole_one(encoding)
        for _ in range(1 + min(int(rng.expovariate(0.7)), 8)):
            data = plain(data, rng)[:200_000]
        # Whatever it is, `read` lets no other error pass than the one a dead letter carries.
        found = read(data, encoding, limits=LIMITS)
        assert len(found.frames) <= LIMITS.max_frames
        assert all(f.width * f.height <= LIMITS.max_pixels for f in found.frames)
        assert all(f.pixels.nbytes == 3 * f.width * f.height for f in found.frames)
        offsets = [frame.offset_us for frame in found.frames]
        assert offsets == sorted(offsets)
        assert max(offsets, default=0) <= LIMITS.max_us
