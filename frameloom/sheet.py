"""The contact sheet: annotated frames of every stream in rows of equal width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
from PIL import Image, ImageDraw

from frameloom.draw import Picture, annotate, font_of, from_image, text_width, to_image
from schemas.result import Detection

_GROUND = (18, 20, 26)
_PANEL = (30, 33, 42)
_TITLE = (240, 242, 247)
_QUIET = (150, 157, 172)
_MARGIN = 28
_GAP = 16
_CAPTION = 74
_HEADER = 92
_INK = 0.95
_TEXT_INSET = 12


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """One annotated frame.

    Attributes:
        picture: (height, width, 3) uint8 BGR, displayed pixels.
        detections: boxes in the picture's pixels.
        title: the stream.
        captions: two quiet lines below it (size and latency, bucket and batch).
    """

    picture: Picture
    detections: Sequence[Detection]
    title: str
    captions: tuple[str, str]

    @property
    def aspect(self) -> float:
        """Width over height."""
        return self.picture.shape[1] / self.picture.shape[0]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tile's picture goes on the sheet, in pixels."""

    x: int
    y: int
    width: int
    height: int


def lay_out(aspects: Sequence[float], width: int, *, row_height: int) -> list[Place]:
    """Rows of pictures, each row as wide as `width`, heights as near `row_height` as that allows.

    The last row is not stretched beyond `row_height`. Rows are cut where the sum of squared
    differences to `row_height` is least, so no row is left with a single stretched picture
    while another is crowded.

    Args:
        aspects: width over height of each picture, > 0.
        width: of the room for pictures and the gaps between them, pixels.
        row_height: the height aimed at, pixels.

    Returns:
        One place per picture, in order, relative to the room's top left corner.
    """
    cuts = _best_cuts(aspects, width, row_height)
    places: list[Place] = []
    y = 0
    for start, stop in cuts:
        height = _fit(aspects[start:stop], width)
        if stop == len(aspects):
            height = min(height, row_height * 1.15)
        left = 0.0
        for i in range(start, stop):
            # Rounded from one edge to the next, so that what rounding adds does not add up.
            right = left + height * aspects[i]
            x = round(left)
            places.append(Place(x, y, max(round(right) - x, 1), max(round(height), 1)))
            left = right + _GAP
        y += max(round(height), 1) + _CAPTION + _GAP
    return places


def _fit(aspects: Sequence[float], width: int) -> float:
    """The height at which pictures side by side fill the width."""
    return max((width - _GAP * (len(aspects) - 1)) / sum(aspects), 1.0)


def _best_cuts(aspects: Sequence[float], width: int, row_height: int) -> list[tuple[int, int]]:
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(aspects) + 1):
        options: list[tuple[float, int]] = []
        for start in range(stop):
            height = _fit(aspects[start:stop], width)
            if stop == len(aspects):
                height = min(height, row_height)
            options.append((best[start][0] + (height - row_height) ** 2, start))
        best.append(min(options))
    cuts: list[tuple[int, int]] = []
    stop = len(aspects)
    while stop > 0:
        cuts.append((best[stop][1], stop))
        stop = best[stop][1]
    return cuts[::-1]


def contact_sheet(
    tiles: Sequence[Tile],
    *,
    heading: str,
    subheading: str,
    width: int = 2000,
    row_height: int = 400,
) -> Picture:
    """All tiles on one sheet, (height, width, 3) uint8 BGR.

    Boxes are scaled with the picture, so lines and letters come out alike on every tile.
    """
    room = width - 2 * _MARGIN
    places = lay_out([tile.aspect for tile in tiles], room, row_height=row_height)
    bottom = max((place.y + place.height for place in places), default=0)
    height = _HEADER + _MARGIN + bottom + _CAPTION + _MARGIN
    sheet = Image.new("RGB", (width, height), _GROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN + 14), heading, font=font_of(34), fill=_TITLE, anchor="lm")
    draw.text((_MARGIN, _MARGIN + 54), subheading, font=font_of(19), fill=_QUIET, anchor="lm")
    for tile, place in zip(tiles, places, strict=True):
        _paste(sheet, draw, tile, place)
    return from_image(sheet)


def _paste(sheet: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, place: Place) -> None:
    x, y = _MARGIN + place.x, _MARGIN + _HEADER + place.y
    panel = (x, y, x + place.width - 1, y + place.height + _CAPTION - 1)
    draw.rounded_rectangle(panel, radius=8, fill=_PANEL)
    sheet.paste(to_image(_shrunk(tile, place)), (x, y))
    text_y = y + place.height
    room = place.width - 2 * _TEXT_INSET
    for text, size, colour, below in (
        (tile.title, 19, _TITLE, 17),
        (tile.captions[0], 14, _QUIET, 39),
        (tile.captions[1], 14, _QUIET, 58),
    ):
        at = (x + _TEXT_INSET, text_y + below)
        draw.text(at, _cut(text, room, size), font=font_of(size), fill=colour, anchor="lm")


def _shrunk(tile: Tile, place: Place) -> Picture:
    """The tile's picture at its place's size, annotated there: sharp letters at any source size."""
    size = (place.width, place.height)
    small = cv2.resize(tile.picture, size, interpolation=cv2.INTER_AREA)
    across, down = place.width / tile.picture.shape[1], place.height / tile.picture.shape[0]
    scaled = [
        Detection(
            (d.box[0] * across, d.box[1] * down, d.box[2] * across, d.box[3] * down),
            d.score, d.class_id, d.label,
        )
        for d in tile.detections
    ]  # fmt: skip
    return annotate(small.astype("uint8", copy=False), scaled, size=_INK)


def _cut(text: str, room: int, size: int) -> str:
    """The text, shortened to fit `room` pixels."""
    font = font_of(size)
    if text_width(text, font) <= room:
        return text
    while text and text_width(text + "...", font) > room:
        text = text[:-1]
    return text + "..."
