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

from pipeline.letterbox import PAD_VALUE, letterbox

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
    out = np.full((len(_files()), height, width, 3), PAD_VALUE, np.uint8)
    for row, content in zip(out, _files(), strict=True):
        picture = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)
        _lay(row, np.asarray(picture, np.uint8))
    return torch.from_numpy(out)


def _lay(row: npt.NDArray[np.uint8], picture: npt.NDArray[np.uint8]) -> None:
    height, width = picture.shape[:2]
    g = letterbox(width, height, row.shape[1], row.shape[0])
    sized = cv2.resize(picture, (g.inner_width, g.inner_height), interpolation=cv2.INTER_LINEAR)
    row[g.top : g.top + g.inner_height, g.left : g.left + g.inner_width] = sized
