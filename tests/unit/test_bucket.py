"""The bucket table: lowest tier that admits the frame, least padding in it, nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bucket import MAX_KNOWN, Bucket, BucketTable
from pipeline.letterbox import letterbox

P480 = Bucket("480p", 500_000, 256, 448, 16)
P480_TALL = Bucket("480p-portrait", 500_000, 448, 256, 16)
P1080 = Bucket("1080p", 2_100_000, 384, 640, 8)
P1080_TALL = Bucket("1080p-portrait", 2_100_000, 640, 384, 8)
P4K = Bucket("4k", 9_000_000, 384, 640, 4)
TABLE = BucketTable([P4K, P480, P1080, P480_TALL, P1080_TALL])

SIZES = st.integers(1, 8000)


@pytest.mark.parametrize(
    ("width", "height", "name"),
    [
        (854, 480, "480p"),
        (480, 854, "480p-portrait"),
        (1920, 1080, "1080p"),
        (1080, 1920, "1080p-portrait"),
        (3840, 2160, "4k"),
        (2160, 3840, "4k"),
        (1, 1, "480p"),
        (1000, 500, "480p"),
        (1001, 500, "1080p"),
        (8000, 8000, "4k"),
        (1, 500_000, "480p-portrait"),
        (500_000, 1, "480p"),
        (1, 500_001, "1080p-portrait"),
    ],
)
def test_choice(width: int, height: int, name: str) -> None:
    bucket, place = TABLE.choose(width, height)
    assert bucket.name == name
    assert place == letterbox(width, height, bucket.width, bucket.height)


@given(SIZES, SIZES)
def test_lowest_tier_that_admits_and_least_padding_in_it(width: int, height: int) -> None:
    bucket, place = TABLE.choose(width, height)
    limits = sorted({b.max_source_pixels for b in TABLE.buckets})
    admitting = [limit for limit in limits if width * height <= limit] or limits[-1:]
    assert bucket.max_source_pixels == admitting[0]
    tier = [b for b in TABLE.buckets if b.max_source_pixels == admitting[0]]
    assert place.padding == min(letterbox(width, height, b.width, b.height).padding for b in tier)


@given(SIZES, SIZES, st.permutations(TABLE.buckets))
def test_order_of_the_table_matters_only_for_ties(
    width: int, height: int, order: list[Bucket]
) -> None:
    bucket, place = BucketTable(order).choose(width, height)
    expected, expected_place = TABLE.choose(width, height)
    assert bucket.max_source_pixels == expected.max_source_pixels
    assert place.padding == expected_place.padding


@given(SIZES, SIZES)
def test_is_a_function_of_the_size(width: int, height: int) -> None:
    first = TABLE.choose(width, height)
    TABLE.choose(height, width)
    assert TABLE.choose(width, height) == first


@pytest.mark.parametrize("first", ["a", "b"])
def test_equal_padding_goes_to_the_first_named(first: str) -> None:
    twins = [Bucket(name, 100, 64, 64, 1) for name in ("a", "b")]
    if first == "b":
        twins.reverse()
    assert BucketTable(twins).choose(10, 10)[0].name == first


def test_needs_buckets_with_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="at least one"):
        BucketTable([])
    with pytest.raises(ValueError, match="unique"):
        BucketTable([P480, Bucket("480p", 1, 32, 32, 1)])


def test_a_size_that_is_remembered_keeps_its_bucket_and_geometry() -> None:
    table = BucketTable([Bucket("wide", 10**9, 64, 96, 1), Bucket("tall", 10**9, 96, 64, 1)])
    sizes = [(width, 200) for width in range(1, MAX_KNOWN + 50)]
    first = [table.choose(*size) for size in sizes]
    assert [table.choose(*size) for size in sizes] == first
