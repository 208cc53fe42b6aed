"""Draw the pictures that the compose stack's producer sends: a folder of JPEGs for each stream.

python -m bench.footage FOLDER [PICTURES]
"""

from __future__ import annotations

import sys
from pathlib import Path

import cv2

from bench.scenes import HELD_OUT, Scene

STREAMS = {"gate": (854, 480), "avenue": (1920, 1080), "portal": (480, 854)}
"""Stream id → width and height of its pictures, pixels."""
PICTURES = 24
_STEP_S = 0.5
_QUALITY = 85


def draw_footage(folder: Path, pictures: int = PICTURES) -> list[Path]:
    """Write `pictures` JPEGs for each stream, half a second apart: `folder/STREAM/NNN.jpg`.

    Returns the streams' folders. The scenes are held out: the demo model has not seen them.
    """
    folders: list[Path] = []
    for number, (stream, (width, height)) in enumerate(STREAMS.items()):
        place = folder / stream
        place.mkdir(parents=True, exist_ok=True)
        scene = Scene(HELD_OUT + number, width, height)
        for index in range(pictures):
            picture, _ = scene.frame(index * _STEP_S)
            done, jpeg = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
            if not done:
                raise ValueError(f"a picture of {width}x{height} cannot be encoded as JPEG")
            (place / f"{index:03}.jpg").write_bytes(jpeg.tobytes())
        folders.append(place)
    return folders


if __name__ == "__main__":
    draw_footage(Path(sys.argv[1]), *(int(count) for count in sys.argv[2:3]))
