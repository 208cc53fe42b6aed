"""Raw frames at the probe: their stated size is believed only when every byte accounts for it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.item import Header
from pipeline.probe import ProbeLimits, probe
from schemas.errors import PoisonError, Reason
from schemas.frame import RAW_ENCODINGS, Encoding, FrameMessage
from schemas.raw import raw_bytes
from tests.builders_pictures import LIMITS, frame

RAW = sorted(RAW_ENCODINGS)


def a_raw(encoding: Encoding, width: int | None, height: int | None, nbytes: int) -> FrameMessage:
    return msgspec.structs.replace(frame(bytes(nbytes), encoding), width=width, height=height)


def refusal(message: FrameMessage, limits: ProbeLimits = LIMITS) -> Reason:
    with pytest.raises(PoisonError) as caught:
        probe(message, limits)
    assert caught.value.stage == "probe"
    return caught.value.code


@pytest.mark.parametrize("encoding", RAW)
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_every_byte_is_accounted_for(encoding: Encoding, off: int) -> None:
    message = a_raw(encoding, 6, 4, raw_bytes(encoding, 6, 4) + off)
    if off:
        assert refusal(message) is Reason.ENCODING_MISMATCH
    else:
        assert probe(message, LIMITS) == Header(encoding, 6, 4)


@pytest.mark.parametrize("encoding", RAW)
@pytest.mark.parametrize(("width", "height"), [(None, 4), (6, None), (None, None)])
def test_a_size_must_be_stated(encoding: Encoding, width: int | None, height: int | None) -> None:
    assert refusal(a_raw(encoding, width, height, 0)) is Reason.ENCODING_MISMATCH


@pytest.mark.parametrize(("width", "height"), [(3, 4), (4, 3), (3, 3)])
def test_nv12_has_even_sides(width: int, height: int) -> None:
    message = a_raw(Encoding.NV12, width, height, width * height * 3 // 2)
    assert refusal(message) is Reason.ENCODING_MISMATCH


@pytest.mark.parametrize("encoding", RAW)
def test_pixels_are_limited(encoding: Encoding) -> None:
    limits = ProbeLimits(max_pixels=24, max_scans=1)
    assert probe(a_raw(encoding, 6, 4, raw_bytes(encoding, 6, 4)), limits).width == 6
    message = a_raw(encoding, 8, 4, raw_bytes(encoding, 8, 4))
    assert refusal(message, limits) is Reason.TOO_MANY_PIXELS


@pytest.mark.parametrize("encoding", RAW)
@pytest.mark.parametrize(("width", "height"), [(0, 0), (0, 4), (4, 0)])
def test_nothing_is_no_picture(encoding: Encoding, width: int, height: int) -> None:
    """The codec takes no such size; frames made here could have one."""
    assert refusal(a_raw(encoding, width, height, 0)) is Reason.ZERO_SIZE


@given(
    encoding=st.sampled_from(RAW),
    width=st.integers(-(2**31), 2**31 - 1),
    height=st.integers(-(2**31), 2**31 - 1),
    nbytes=st.integers(0, 100),
)
def test_any_claim_is_refused_or_true(
    encoding: Encoding, width: int, height: int, nbytes: int
) -> None:
    try:
        header = probe(a_raw(encoding, width, height, nbytes), LIMITS)
    except PoisonError:
        return
    assert nbytes == raw_bytes(encoding, header.width, header.height)


def test_only_raw_encodings_have_a_size_in_bytes() -> None:
    with pytest.raises(ValueError, match="jpeg"):
        raw_bytes(Encoding.JPEG, 1, 1)
