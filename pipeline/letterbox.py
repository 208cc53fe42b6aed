"""The geometry of fitting a picture into a bucket, computed once and shared by every user.

Decoders place the picture with it, post-processing maps boxes back with it. Both read the same
numbers, because an odd padding placed one pixel away costs more accuracy than any rounding.
The rules are those of Ultralytics 8.4 (`LetterBox(auto=False, center=True, scaleup=True)` and
`scale_boxes`), kept to the pixel so that results equal the reference call.
"""

from __future__ import annotations

from dataclasses import dataclass

PAD_VALUE = 114
"""Grey level (all three channels) around the picture."""


@dataclass(frozen=True, slots=True)
class Letterbox:
    """Where a displayed picture of `source_width` × `source_height` lies in a bucket.

    All in pixels. The resized picture covers columns [left, left + inner_width) and rows
    [top, top + inner_height) of the bucket's `width` × `height`; the rest is `PAD_VALUE`.
    """

    source_width: int
    source_height: int
    width: int
    height: int
    inner_width: int
    inner_height: int
    left: int
    top: int

    @property
    def gain_x(self) -> float:
        """Bucket pixels per source pixel, horizontally."""
        return self.inner_width / self.source_width

    @property
    def gain_y(self) -> float:
        """Bucket pixels per source pixel, vertically."""
        return self.inner_height / self.source_height

    @property
    def padding(self) -> float:
        """The share of the bucket that is padding, 0 ≤ padding < 1."""
        return 1.0 - (self.inner_width * self.inner_height) / (self.width * self.height)


def letterbox(source_width: int, source_height: int, width: int, height: int) -> Letterbox:
    """Fit a displayed picture into a bucket, centred, scaled up or down, aspect kept.

    Args:
        source_width, source_height: displayed size (orientation applied), pixels, ≥ 1.
        width, height: the bucket's size, pixels, ≥ 1.
    """
    if min(source_width, source_height, width, height) < 1:
        raise ValueError(f"sizes must be ≥ 1: {source_width}x{source_height} → {width}x{height}")
    scale = min(height / source_height, width / source_width)
    inner_width = max(round(source_width * scale), 1)
    inner_height = max(round(source_height * scale), 1)
    return Letterbox(
        source_width=source_width,
        source_height=source_height,
        width=width,
        height=height,
        inner_width=inner_width,
        inner_height=inner_height,
        left=round((width - inner_width) / 2 - 0.1),
        top=round((height - inner_height) / 2 - 0.1),
    )
