"""The fixed pictures on which backends are compared: drawn streets and Ultralytics' photographs.

The drawn ones lie in `pipeline/assets/` (made by `python -m bench.parity_assets`): the demo model
knows nothing else. Models of the COCO classes find people and a bus on the photographs.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import torch

from pipeline.letterbox import PAD_VALUE, Letterbox, letterbox

Pixels = npt.NDArray[np.uint8]

ASSETS = Path(__file__).parent / "assets"


@functools.cache
def _files() -> tuple[bytes, ...]:
    files = sorted(ASSETS.glob("street-*.jpg"))
    # Found without importing Ultralytics, which takes seconds.
    spec = importlib.util.find_spec("ultralytics")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        files += sorted((Path(folder) / "assets").glob("*.jpg"))
    return tuple(file.read_bytes() for file in files)


@functools.cache
def digest() -> str:
    """Of the pictures, hexadecimal: answers for others cannot be compared."""
    whole = hashlib.sha256()
    for content in _files():
        whole.update(content)
    return whole.hexdigest()[:16]


def frames_at(height: int, width: int) -> torch.Tensor:
    """uint8 (pictures, height, width, 3), RGB, letterboxed."""
    rows: list[Pixels] = []
    for content in _files():
        picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)
        pixels = np.asarray(picture, np.uint8)
        rows.append(lay(pixels, letterbox(pixels.shape[1], pixels.shape[0], width, height)))
    return torch.from_numpy(np.stack(rows))


def lay(picture: Pixels, g: Letterbox) -> Pixels:
    """A picture (h, w, 3) of the geometry's source size in its bucket, as decoders place it."""
    out = np.full((g.height, g.width, 3), PAD_VALUE, np.uint8)
    sized = cv2.resize(picture, (g.inner_width, g.inner_height), interpolation=cv2.INTER_LINEAR)
    out[g.top : g.top + g.inner_height, g.left : g.left + g.inner_width] = sized
    return out
