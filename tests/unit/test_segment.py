"""Which frames of a segment are answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.segment import Sampler, Sampling


def taken(sampling: Sampling, stamps_us: list[int]) -> list[int]:
    sampler = Sampler(sampling)
    return [index for index, at in enumerate(stamps_us) if sampler.takes(index, at)]


@pytest.mark.parametrize(("every", "expected"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (9, [0])])
def test_every_nth(every: int, expected: list[int]) -> None:
    assert taken(Sampling(every=every), [0, 1, 2, 3, 4]) == expected


@pytest.mark.parametrize(
    ("rate", "fps", "expected"),
    [
        (30, 10.0, [0, 3, 6, 9]),
        (30, 15.0, [0, 2, 4, 6, 8]),
        (10, 3.0, [0, 4, 7]),
        (10, 50.0, list(range(10))),
        (25, 0.5, [0]),
    ],
)
@pytest.mark.parametrize("round_to_us", [1, 1_000])
def test_a_rate(rate: int, fps: float, expected: list[int], round_to_us: int) -> None:
    stamps = [round(n * 1e6 / rate / round_to_us) * round_to_us for n in range(10)]
    assert taken(Sampling(fps=fps), stamps) == expected


@given(
    st.lists(st.integers(0, 200_000), min_size=1, max_size=50),
    st.floats(0.1, 100.0),
)
def test_no_second_has_more_frames_than_the_rate(gaps: list[int], fps: float) -> None:
    stamps = [sum(gaps[:n]) for n in range(len(gaps))]
    chosen = taken(Sampling(fps=fps), stamps)
    assert chosen[0] == 0
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= stamps[-1] * fps / 1e6 + fps / 1e3 + 1
