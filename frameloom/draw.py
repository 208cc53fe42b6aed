"""Drawing detections on pictures: boxes, label chips and a colour per class."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from pipeline.decode_avif import decode_avif
from pipeline.decode_gif import decode_gif
from pipeline.place import turned
from pipeline.probe import ProbeLimits, probe
from schemas.errors import PoisonError, Reason
from schemas.frame import RAW_ENCODINGS, Encoding, FrameMessage
from schemas.result import Detection

Picture = npt.NDArray[np.uint8]
"""(height, width, 3) uint8 BGR."""

Colour = tuple[int, int, int]
"""Red, green, blue, each 0..255."""

_PALETTE: tuple[Colour, ...] = (
    (52, 199, 235), (255, 159, 67), (255, 99, 132), (140, 220, 90), (190, 140, 255),
    (255, 214, 64), (64, 224, 190), (255, 130, 210), (120, 160, 255), (230, 120, 80),
)  # fmt: skip
_GOLDEN_RATIO = 0.618034
_DARK_TEXT: Colour = (16, 18, 24)
_LIGHT_TEXT: Colour = (255, 255, 255)
_ANY_SIZE = ProbeLimits(max_pixels=1 << 30, max_scans=1000)
# Chips and lines at a short side of 480 pixels; they grow with the picture.
_REFERENCE_SIDE = 480.0
_LINE_PX = 2.0
_TEXT_PX = 13.0


def colour_of(class_id: int) -> Colour:
    """A class's colour: hand-picked for the first ten, then hues spread by the golden ratio."""
    if 0 <= class_id < len(_PALETTE):
        return _PALETTE[class_id]
    red, green, blue = colorsys.hsv_to_rgb((class_id * _GOLDEN_RATIO) % 1.0, 0.55, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


@lru_cache(maxsize=64)
def font_of(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own typeface at `size` pixels, ≥ 1: there on every machine, Latin letters only."""
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("this Pillow was built without FreeType")  # noqa: TRY004 (of the installation, not of a caller)
    return font


def text_width(text: str, font: ImageFont.FreeTypeFont) -> int:
    """Pixels that a line of text takes."""
    return round(font.getlength(text))


def annotate(
    picture: Picture, detections: Sequence[Detection], *, size: float | None = None
) -> Picture:
    """A copy of the picture with boxes, labels and scores.

    Args:
        picture: displayed pixels (EXIF orientation applied), the space of the boxes.
        detections: any order; better scores are drawn over worse ones.
        size: of lines and letters; 1 is 2 px and 13 px, None what suits the picture.
    """
    canvas = to_image(picture)
    draw = ImageDraw.Draw(canvas)
    if size is None:
        size = float(min(picture.shape[:2])) / _REFERENCE_SIDE
    line = max(round(_LINE_PX * size), 1)
    font = font_of(max(round(_TEXT_PX * size), 9))
    for found in sorted(detections, key=lambda detection: detection.score):
        _box(draw, found, line)
    # Chips after all boxes, so that no line crosses a text.
    for found in sorted(detections, key=lambda detection: detection.score):
        _chip(draw, found, line, font)
    return from_image(canvas)


def to_image(picture: Picture) -> Image.Image:
    """BGR pixels → a Pillow image of its own."""
    return Image.fromarray(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))


def from_image(image: Image.Image) -> Picture:
    """A Pillow image → BGR pixels of their own."""
    return cast("Picture", cv2.cvtColor(np.asarray(image), cv2.COLOR_RGB2BGR))


def decode_picture(frame: FrameMessage) -> Picture:
    """The whole frame as displayed (EXIF orientation applied), for drawing on it.

    Raises:
        PoisonError: the bytes are not a picture.
    """
    if frame.claim is not None and not frame.data:
        detail = f"the record only names its picture: {frame.claim.uri}"
        raise PoisonError(Reason.DECODE_FAILED, detail, stage="decode")
    data = np.frombuffer(frame.data, np.uint8)
    try:
        picture = _raw(frame, data) if frame.encoding in RAW_ENCODINGS else _encoded(frame, data)
    except (cv2.error, ValueError) as error:
        raise PoisonError(Reason.DECODE_FAILED, str(error), stage="decode") from error
    if picture is None:
        raise PoisonError(Reason.DECODE_FAILED, "not a readable picture", stage="decode")
    return picture


def _encoded(frame: FrameMessage, data: Picture) -> Picture | None:
    """The picture of an encoded frame. OpenCV turns it, but for an AVIF, and reads a GIF slowly."""
    if frame.encoding is Encoding.GIF:
        shown = decode_gif(frame.data)
        if isinstance(shown, PoisonError):
            raise shown
    elif frame.encoding is Encoding.AVIF:
        header = probe(frame, _ANY_SIZE)
        stored = decode_avif(frame.data)
        shown = None if stored is None else turned(stored, header.orientation)
    else:
        return cast("Picture | None", cv2.imdecode(data, cv2.IMREAD_COLOR)) if data.size else None
    return None if shown is None else cast("Picture", cv2.cvtColor(shown, cv2.COLOR_RGB2BGR))


def _raw(frame: FrameMessage, data: Picture) -> Picture:
    """The picture of a raw frame."""
    width, height = frame.width or 0, frame.height or 0
    match frame.encoding:
        case Encoding.BGR24:
            return data.reshape(height, width, 3)
        case Encoding.RGB24:
            code, shape = cv2.COLOR_RGB2BGR, (height, width, 3)
        case Encoding.GRAY8:
            code, shape = cv2.COLOR_GRAY2BGR, (height, width)
        case _:
            code, shape = cv2.COLOR_YUV2BGR_NV12, (height * 3 // 2, width)
    return cast("Picture", cv2.cvtColor(data.reshape(shape), code))


def _box(draw: ImageDraw.ImageDraw, found: Detection, line: int) -> None:
    x1, y1, x2, y2 = (round(side) for side in found.box)
    # A dark seam outside keeps the colour readable on any ground.
    seam = max(line // 2, 1)
    outer = (x1 - seam, y1 - seam, max(x2, x1) + seam, max(y2, y1) + seam)
    draw.rectangle(outer, outline=_DARK_TEXT, width=seam)
    box = (x1, y1, max(x2, x1), max(y2, y1))
    draw.rectangle(box, outline=colour_of(found.class_id), width=line)


def _chip(
    draw: ImageDraw.ImageDraw, found: Detection, line: int, font: ImageFont.FreeTypeFont
) -> None:
    text = f"{found.label} {found.score:.2f}"
    pad = max(round(font.size * 0.3), 2)
    wide = text_width(text, font) + 2 * pad
    tall = round(font.size * 1.35)
    x, y = round(found.box[0]) - line // 2, round(found.box[1]) - tall
    # Above the box where there is room, else inside it; never outside the picture.
    if y < 0:
        y = max(round(found.box[1]), 0)
    full_width, full_height = draw.im.size
    x = max(min(x, full_width - wide), 0)
    y = max(min(y, full_height - tall), 0)
    colour = colour_of(found.class_id)
    draw.rounded_rectangle((x, y, x + wide - 1, y + tall - 1), radius=pad, fill=colour)
    draw.text((x + pad, y + tall / 2), text, font=font, fill=text_on(colour), anchor="lm")


def text_on(colour: Colour) -> Colour:
    """Dark or light text, whichever reads better on the colour (Rec. 601 luma)."""
    luma = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    return _DARK_TEXT if luma > 140 else _LIGHT_TEXT
