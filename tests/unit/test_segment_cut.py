"""Where video is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frameloom.segment_cut import Cut, SegmentBounds, SegmentCutter

BOUNDS = SegmentBounds(max_bytes=10_000)


def cuts(cutter: SegmentCutter, keys: str, *, step_s: float = 0.25, nbytes: int = 10) -> str:
    """One letter per packet: `K` a key frame, `-` another; what became of each, by first letter."""
    return "".join(
        cutter.put(key=key == "K", at_s=i * step_s, nbytes=nbytes).value[0]
        for i, key in enumerate(keys)
    )


def test_segments_begin_at_the_first_key_frame_after_their_time() -> None:
    assert cuts(SegmentCutter(1.0, BOUNDS), "K-K-K-K-K") == "bjjjbjjjb"


def test_a_long_group_is_one_segment() -> None:
    assert cuts(SegmentCutter(1.0, BOUNDS), "K-------K-") == "bjjjjjjjbj"


def test_what_comes_before_the_first_key_frame_is_skipped() -> None:
    assert cuts(SegmentCutter(1.0, BOUNDS), "--K-") == "ssbj"


def test_a_second_of_rounded_stamps_is_a_second() -> None:
    cutter = SegmentCutter(1.0, BOUNDS)
    assert cutter.put(key=True, at_s=0.0, nbytes=1) is Cut.BEGIN
    assert cutter.put(key=True, at_s=0.99999, nbytes=1) is Cut.BEGIN


def test_without_key_frames_it_does_not_grow_for_ever() -> None:
    for bounds in (
        SegmentBounds(max_bytes=35),
        SegmentBounds(max_bytes=1_000, max_frames=3),
        SegmentBounds(max_bytes=1_000, max_s=0.6),
    ):
        assert cuts(SegmentCutter(1.0, bounds), "K------K") == "bjjosssb"


def test_stamps_that_go_back_begin_anew() -> None:
    cutter = SegmentCutter(1.0, BOUNDS)
    cutter.put(key=True, at_s=100.0, nbytes=1)
    assert cutter.put(key=True, at_s=3.0, nbytes=1) is Cut.BEGIN


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=200))
def test_a_segment_is_never_over_its_bounds(packets: list[tuple[bool, int]]) -> None:
    cutter, held = SegmentCutter(0.5, SegmentBounds(max_bytes=200)), 0
    for i, (key, nbytes) in enumerate(packets):
        match cutter.put(key=key, at_s=i * 0.1, nbytes=nbytes):
            case Cut.BEGIN:
                assert key
                held = nbytes
            case Cut.JOIN:
                held += nbytes
            case _:
                held = 0
        assert held <= 200
