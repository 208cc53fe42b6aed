"""Training pictures for the demo model: letterboxed scenes with labels, drawn as needed."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
import torch

from bench.scene_backdrop import Picture
from bench.scenes import HELD_OUT, Scene, Truth

Shape = tuple[int, int]
"""(height, width) of a letterbox target."""


@dataclass(frozen=True, slots=True)
class Diet:
    """What one training shape (height, width) is fed: source (width, height)s, batch size."""

    shape: Shape
    sizes: tuple[tuple[int, int], ...]
    batch: int


DIETS = (
    Diet((256, 448), ((854, 480), (640, 360), (448, 252), (640, 480)), 4),
    Diet((448, 256), ((480, 854), (360, 640), (252, 448)), 4),
    Diet((384, 640), ((640, 360), (854, 480), (960, 540), (1280, 720)), 2),
    Diet((640, 384), ((360, 640), (480, 854), (540, 960)), 2),
)
APPETITE = (0.42, 0.2, 0.26, 0.12)
"""How often each diet is served, in batches."""
FRAMES_PER_SCENE = 6
LABELLED = 0.3
"""Objects of which less can be seen are not taught."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Letterboxed pictures (n, 3, h, w) uint8 RGB with their labels.

    `boxes` (m, 4) are x, y, w, h in 0..1 of the picture numbered in `owner` (m,); `classes` (m, 1).
    """

    pictures: torch.Tensor
    classes: torch.Tensor
    boxes: torch.Tensor
    owner: torch.Tensor


def letterbox(picture: Picture, shape: Shape) -> tuple[Picture, float, int, int]:
    """The picture centred in `shape` (height, width) on grey 114; gain, left and top padding."""
    height, width = picture.shape[:2]
    gain = min(shape[0] / height, shape[1] / width)
    new = (max(round(width * gain), 1), max(round(height * gain), 1))
    left, top = round((shape[1] - new[0]) / 2 - 0.1), round((shape[0] - new[1]) / 2 - 0.1)
    canvas = np.full((*shape, 3), 114, np.uint8)
    canvas[top : top + new[1], left : left + new[0]] = cv2.resize(
        picture, new, interpolation=cv2.INTER_LINEAR
    )
    return canvas, gain, left, top


Served = tuple[Picture, list[Truth], tuple[float, int, int]]
"""A letterboxed picture, its truths in source pixels, and gain, left and top of the letterbox."""


class Kitchen:
    """Draws one diet's training pictures, one after another."""

    def __init__(self, diet: Diet, seed: int) -> None:
        self.diet = diet
        self._rng = np.random.default_rng(seed)
        self._scene = Scene(0, 16, 16)
        self._left = 0
        self._t = 0.0
        self._larder: deque[Served] = deque(maxlen=200)

    def batch(self) -> Batch:
        """The next batch."""
        pictures, classes, boxes, owner = [], [], [], []
        height, width = self.diet.shape
        for n in range(self.diet.batch):
            again = n % 2 == 1 and len(self._larder) > 40
            if again:
                picture, truths, (gain, left, top) = self._larder[
                    int(self._rng.integers(len(self._larder)))
                ]
            else:
                picture, truths, (gain, left, top) = self._one()
                self._larder.append((picture, truths, (gain, left, top)))
            flip = self._rng.random() < 0.5
            pictures.append(picture[:, ::-1] if flip else picture)
            for truth in truths:
                x1, y1, x2, y2 = (v * gain for v in truth.box)
                middle = (x1 + x2) / 2 + left
                boxes.append(
                    (width - middle if flip else middle, (y1 + y2) / 2 + top, x2 - x1, y2 - y1)
                )
                classes.append(float(truth.class_id))
                owner.append(float(n))
        stacked = np.ascontiguousarray(np.stack(pictures)[..., ::-1].transpose(0, 3, 1, 2))
        scale = torch.tensor([width, height, width, height])
        return Batch(
            torch.from_numpy(stacked),
            torch.tensor(classes).view(-1, 1),
            torch.tensor(boxes).view(-1, 4) / scale,
            torch.tensor(owner),
        )

    def _one(self) -> Served:
        rng = self._rng
        if self._left == 0:
            width, height = self.diet.sizes[int(rng.integers(len(self.diet.sizes)))]
            self._scene = Scene(int(rng.integers(HELD_OUT)), width, height)
            self._left = FRAMES_PER_SCENE
            self._t = float(rng.uniform(0, 100))
        self._left -= 1
        self._t += float(rng.uniform(5, 60))
        picture, truths = self._scene.frame(self._t)
        if rng.random() < 0.3:
            quality = int(rng.integers(60, 96))
            coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            picture = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)
        boxed, gain, left, top = letterbox(picture, self.diet.shape)
        gains = rng.uniform(0.85, 1.15) * rng.uniform(0.94, 1.06, 3)
        table = np.clip(np.arange(256)[:, None] * gains[None], 0, 255).astype(np.uint8)
        boxed = np.asarray(cv2.LUT(boxed, table[None]), np.uint8)
        return boxed, [t for t in truths if t.visible >= LABELLED], (gain, left, top)


def batches(seed: int, pictures: int) -> Iterator[Batch]:
    """Batches of all diets, by their share, of `pictures` in all; a thread draws ahead."""
    rng = np.random.default_rng(seed)
    kitchens = [Kitchen(diet, seed + 1 + i) for i, diet in enumerate(DIETS)]
    weight = np.asarray(APPETITE)
    served: queue.Queue[Batch] = queue.Queue(maxsize=4)
    order: list[int] = []
    while sum(DIETS[i].batch for i in order) < pictures:
        order.append(int(rng.choice(len(DIETS), p=weight)))

    def cook() -> None:
        for i in order:
            served.put(kitchens[i].batch())

    threading.Thread(target=cook, name="scenes", daemon=True).start()
    for _ in order:
        yield served.get()
