"""The pictures of the parity runs: photographs and scenes, encoded once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from ultralytics.utils import ASSETS

from bench.scene_backdrop import Picture
from bench.scenes import HELD_OUT, Scene
from schemas.frame import Encoding

_EXIF = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
"""A JPEG segment that says orientation 6: turn clockwise to display."""


@dataclass(frozen=True, slots=True)
class Sample:
    """An encoded picture. `name` is unique."""

    name: str
    encoding: Encoding
    data: bytes


@functools.cache
def samples() -> tuple[Sample, ...]:
    """Photographs and scenes in common and odd sizes, JPEG and PNG, one turned by EXIF.

    Photographs share their pictures with scenes: the demo model knows drawn streets only, and a
    picture without a box would prove nothing.
    """
    bus, zidane = _photograph("bus.jpg"), _photograph("zidane.jpg")
    return (
        _jpeg("bus beside a scene", np.hstack((bus, _scene(9, 810, 1080)))),
        _jpeg("zidane beside a scene", np.hstack((_sized(zidane, 640, 360), _scene(7, 640, 360)))),
        _png("bus beside a scene, odd", np.hstack((_sized(bus, 401, 533), _scene(10, 401, 533)))),
        _jpeg("zidane above a scene", np.vstack((_sized(zidane, 611, 345), _scene(8, 611, 345)))),
        _jpeg("scene 854x480", _scene(1, 854, 480)),
        _jpeg("scene 1920x1080", _scene(2, 1920, 1080)),
        _png("scene 480x853", _scene(3, 480, 853)),
        _jpeg("scene 641x361", _scene(4, 641, 361)),
        _turned("scene turned", _scene(5, 854, 480)),
        _png("scene 333x247", _scene(6, 333, 247)),
    )


@functools.cache
def photographs() -> tuple[Sample, ...]:
    """Ultralytics' two photographs, byte for byte. For models that find something on them."""
    names = ("bus.jpg", "zidane.jpg")
    return tuple(Sample(name, Encoding.JPEG, (ASSETS / name).read_bytes()) for name in names)


def _sized(picture: Picture, width: int, height: int) -> npt.NDArray[Any]:
    return cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)


def _photograph(name: str) -> Picture:
    return np.asarray(cv2.imread(str(ASSETS / name)), np.uint8)


def _scene(seed: int, width: int, height: int) -> Picture:
    return Scene(HELD_OUT + seed, width, height).frame(5.0)[0]


def _jpeg(name: str, picture: npt.NDArray[Any]) -> Sample:
    return Sample(name, Encoding.JPEG, cv2.imencode(".jpg", picture)[1].tobytes())


def _png(name: str, picture: npt.NDArray[Any]) -> Sample:
    return Sample(name, Encoding.PNG, cv2.imencode(".png", picture)[1].tobytes())


def _turned(name: str, picture: npt.NDArray[Any]) -> Sample:
    """Stored on its side, with an EXIF orientation that puts it right."""
    stored = np.ascontiguousarray(cv2.rotate(picture, cv2.ROTATE_90_COUNTERCLOCKWISE))
    data = _jpeg(name, stored).data
    return Sample(name, Encoding.JPEG, data[:2] + _EXIF + data[2:])
