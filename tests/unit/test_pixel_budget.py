"""Pictures are decoded together only as far as the budget reaches; none waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pipeline.item import Header, Item
from pipeline.pixel_budget import PixelBudget, stored_pixels, within
from schemas.frame import Encoding
from tests.builders_pictures import bucket, item, jpeg, picture

DEADLINE_S = 180.0
A_JPEG = item(jpeg(picture(8, 8)), Encoding.JPEG, bucket(32, 32))


def of_pixels(pixels: int) -> Item:
    return replace(A_JPEG, header=Header(Encoding.JPEG, pixels, 1, 1))


@given(sizes=st.lists(st.integers(1, 120), max_size=12), pixels=st.integers(1, 200))
def test_pieces_are_neighbours_that_fit_and_as_many_as_do(sizes: list[int], pixels: int) -> None:
    pieces = list(within([of_pixels(size) for size in sizes], pixels))
    assert [index for piece in pieces for index in piece] == list(range(len(sizes)))
    used = [sum(sizes[piece.start : piece.stop]) for piece in pieces]
    for piece, held in zip(pieces, used, strict=True):
        assert held <= pixels or len(piece) == 1
    for held, following in zip(used, pieces[1:], strict=False):
        assert held + sizes[following.start] > pixels


def test_stored_pixels_are_those_before_the_turn() -> None:
    turned = replace(A_JPEG, header=Header(Encoding.JPEG, 30, 20, 6))
    assert stored_pixels(turned) == 600


@pytest.mark.parametrize("encoding", [Encoding.AVIF, Encoding.TIFF])
def test_pixels_that_take_more_memory_count_double(encoding: Encoding) -> None:
    assert stored_pixels(replace(A_JPEG, header=Header(encoding, 30, 20))) == 1200


def test_a_thread_waits_until_there_is_room() -> None:
    budget, first_in, may_end, second_in = PixelBudget(10), *(threading.Event() for _ in range(3))

    def first() -> None:
        with budget.held(6):
            first_in.set()
            assert may_end.wait(DEADLINE_S)
            assert not second_in.is_set()

    def second() -> None:
        with budget.held(5):
            second_in.set()

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(first)
        assert first_in.wait(DEADLINE_S)
        waiting = pool.submit(second)
        with budget.held(4):  # this much is left
            pass
        may_end.set()
        for each in (running, waiting):
            each.result(DEADLINE_S)


def test_room_comes_back_after_an_error() -> None:
    budget = PixelBudget(10)
    with pytest.raises(KeyError), budget.held(10):
        raise KeyError
    with budget.held(10):
        pass


def test_a_picture_beyond_the_budget_is_decoded_alone() -> None:
    budget = PixelBudget(10)
    with budget.held(1_000):
        pass
    with pytest.raises(ValueError, match="at least one"):
        PixelBudget(0)


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=30))
def test_never_more_than_the_budget(sizes: list[int]) -> None:
    budget, lock, used, most = PixelBudget(40), threading.Lock(), 0, 0

    def decode(size: int) -> None:
        nonlocal used, most
        with budget.held(size):
            with lock:
                used += size
                most = max(most, used)
            with lock:
                used -= size

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(decode, sizes, timeout=DEADLINE_S))
    assert used == 0
    assert most <= 40
