"""Draw the streets that backends are compared on: `python -m bench.parity_assets`.

Held-out scenes, small, in `pipeline/assets/`; see `pipeline/parity_pictures.py`. Drawing them again
changes their digest, and with it exported files lose what they are compared with.
"""

from __future__ import annotations

import cv2

from bench.scenes import HELD_OUT, Scene
from pipeline.parity_pictures import ASSETS

_STREETS = ((2, 480, 270), (9, 480, 270), (5, 270, 480))
"""Seed above `HELD_OUT`, width, height."""


def main() -> None:
    """Write the files."""
    ASSETS.mkdir(exist_ok=True)
    for number, (seed, width, height) in enumerate(_STREETS):
        picture = Scene(HELD_OUT + seed, width, height).frame(5.0)[0]
        coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 80])[1]
        (ASSETS / f"street-{number}.jpg").write_bytes(coded.tobytes())


if __name__ == "__main__":
    main()
