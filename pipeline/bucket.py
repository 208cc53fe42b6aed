"""Buckets: the tensor shapes that frames are gathered in, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.letterbox import Letterbox, letterbox

MAX_KNOWN = 1_024
"""Picture sizes whose bucket is remembered."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One target shape with its batch limit.

    Attributes:
        name: unique within a route, e.g. `480p`, `1080p-portrait`.
        max_source_pixels: the largest displayed picture (width × height) that its tier admits.
        height, width: the tensor's size in pixels, multiples of the model's stride (32).
        max_batch: most frames in one batch, ≥ 1.
    """

    name: str
    max_source_pixels: int
    height: int
    width: int
    max_batch: int


class BucketTable:
    """Chooses a bucket by a frame's displayed size. A pure function of the size: no hysteresis.

    Buckets with the same `max_source_pixels` form a tier. A frame takes the lowest tier that
    admits its pixel count (the top tier admits every frame that passed the limits) and in it the
    shape with the least padding; equal padding goes to the bucket named first.
    """

    def __init__(self, buckets: Sequence[Bucket]) -> None:
        if not buckets:
            raise ValueError("a bucket table needs at least one bucket")
        names = [bucket.name for bucket in buckets]
        if len(set(names)) != len(names):
            raise ValueError(f"bucket names must be unique: {names}")
        limits = sorted({bucket.max_source_pixels for bucket in buckets})
        self.buckets = tuple(buckets)
        self._known: dict[tuple[int, int], tuple[Bucket, Letterbox]] = {}
        self._tiers = tuple(
            (limit, tuple(b for b in buckets if b.max_source_pixels == limit)) for limit in limits
        )

    def choose(self, width: int, height: int) -> tuple[Bucket, Letterbox]:
        """The bucket for a displayed picture of `width` × `height` pixels (each ≥ 1), and the
        geometry of the picture in it."""
        # Cameras send one size for hours, and the geometry costs more than the rest of the choice.
        known = self._known.get((width, height))
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[width, height] = self._choose(width, height)
        return known

    def _choose(self, width: int, height: int) -> tuple[Bucket, Letterbox]:
        pixels = width * height
        for limit, tier in self._tiers:
            if pixels <= limit:
                return self._least_padding(tier, width, height)
        return self._least_padding(self._tiers[-1][1], width, height)

    @staticmethod
    def _least_padding(
        tier: tuple[Bucket, ...], width: int, height: int
    ) -> tuple[Bucket, Letterbox]:
        fits = ((bucket, letterbox(width, height, bucket.width, bucket.height)) for bucket in tier)
        return min(fits, key=lambda fit: fit[1].padding)
