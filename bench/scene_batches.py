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
from bench.scene_match import Box
from bench.scenes import HELD_OUT, Scene
from pipeline.letterbox import PAD_VALUE, letterbox

LABELLED = 0.3
"""Objects of which less can be seen are not taught."""

_FRAMES_PER_SCENE = 6
_KEPT = 200
_KEPT_BEFORE_REUSE = 40


@dataclass(frozen=True, slots=True)
class Mix:
    """What one training shape is fed: source sizes, batch size, its share (0..1) of the batches."""

    height: int
    width: int
    sizes: tuple[tuple[int, int], ...]
    batch: int
    share: float


MIXES = (
    Mix(256, 448, ((854, 480), (640, 360), (448, 252), (640, 480)), 8, 0.42),
    Mix(448, 256, ((480, 854), (360, 640), (252, 448)), 8, 0.2),
    Mix(384, 640, ((640, 360), (854, 480), (960, 540), (1280, 720)), 4, 0.26),
    Mix(640, 384, ((360, 640), (480, 854), (540, 960)), 4, 0.12),
)
"""The demo's bucket shapes; sources are small because a large picture takes longer to draw."""


@dataclass(frozen=True, slots=True)
class Example:
    """One letterboxed picture (height, width, 3) uint8 BGR; boxes in its pixels."""

    picture: Picture
    boxes: list[Box]
    classes: list[int]

    def mirrored(self) -> Example:
        """Left and right exchanged."""
        width = float(self.picture.shape[1])
        boxes = [(width - x2, y1, width - x1, y2) for x1, y1, x2, y2 in self.boxes]
        return Example(self.picture[:, ::-1], boxes, self.classes)


@dataclass(frozen=True, slots=True)
class Batch:
    """Pictures (n, 3, h, w) uint8 RGB with their labels.

    `boxes` (m, 4) are centre x, centre y, width, height in 0..1 of the picture numbered in `owner`
    (m,); `classes` (m, 1). All float32 on the CPU.
    """

    pictures: torch.Tensor
    classes: torch.Tensor
    boxes: torch.Tensor
    owner: torch.Tensor


class Supply:
    """Draws one mix's pictures; every other one, once enough are kept, is shown again mirrored."""

    def __init__(self, mix: Mix, seed: int) -> None:
        self._mix = mix
        self._rng = np.random.default_rng(seed)
        self._scene: Scene | None = None
        self._frames_left = 0
        self._t = 0.0
        self._kept: deque[Example] = deque(maxlen=_KEPT)

    def batch(self) -> Batch:
        """The next batch."""
        examples = [self._example(again=n % 2 == 1) for n in range(self._mix.batch)]
        pictures = np.stack([example.picture for example in examples])[..., ::-1]
        rows = [
            (float(n), float(class_id), *box)
            for n, example in enumerate(examples)
            for box, class_id in zip(example.boxes, example.classes, strict=True)
        ]
        table = torch.tensor(rows, dtype=torch.float32).view(-1, 6)
        low, high = table[:, 2:4], table[:, 4:6]
        size = torch.tensor([self._mix.width, self._mix.height], dtype=torch.float32)
        return Batch(
            pictures=torch.from_numpy(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))),
            classes=table[:, 1:2],
            boxes=torch.cat([(low + high) / 2 / size, (high - low) / size], dim=1),
            owner=table[:, 0],
        )

    def _example(self, *, again: bool) -> Example:
        if again and len(self._kept) > _KEPT_BEFORE_REUSE:
            example = self._kept[int(self._rng.integers(len(self._kept)))]
        else:
            example = self._drawn()
            self._kept.append(example)
        return example.mirrored() if self._rng.random() < 0.5 else example

    def _drawn(self) -> Example:
        rng, mix = self._rng, self._mix
        if self._scene is None or self._frames_left == 0:
            size = mix.sizes[int(rng.integers(len(mix.sizes)))]
            self._scene = Scene(int(rng.integers(HELD_OUT)), *size)
            self._frames_left = _FRAMES_PER_SCENE
            self._t = float(rng.uniform(0, 100))
        self._frames_left -= 1
        self._t += float(rng.uniform(5, 60))
        picture, truths = self._scene.frame(self._t)
        if rng.random() < 0.3:
            quality = int(rng.integers(60, 96))
            coded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
            picture = np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)
        place = letterbox(self._scene.width, self._scene.height, mix.width, mix.height)
        gains = rng.uniform(0.85, 1.15) * rng.uniform(0.94, 1.06, 3)
        table = np.clip(np.arange(256)[:, None] * gains[None], 0, 255).astype(np.uint8)
        canvas = np.full((mix.height, mix.width, 3), PAD_VALUE, np.uint8)
        inner = cv2.resize(
            picture, (place.inner_width, place.inner_height), interpolation=cv2.INTER_LINEAR
        )
        rows = slice(place.top, place.top + place.inner_height)
        columns = slice(place.left, place.left + place.inner_width)
        canvas[rows, columns] = cv2.LUT(inner, table[None])
        taught = [truth for truth in truths if truth.visible >= LABELLED]
        boxes = [
            (
                truth.box[0] * place.gain_x + place.left,
                truth.box[1] * place.gain_y + place.top,
                truth.box[2] * place.gain_x + place.left,
                truth.box[3] * place.gain_y + place.top,
            )
            for truth in taught
        ]
        return Example(canvas, boxes, [truth.class_id for truth in taught])


def batches(seed: int, pictures: int) -> Iterator[Batch]:
    """Batches of all mixes, by their share, of `pictures` in all; a thread draws ahead."""
    rng = np.random.default_rng(seed)
    supplies = [Supply(mix, seed + 1 + i) for i, mix in enumerate(MIXES)]
    order: list[int] = []
    planned = 0
    while planned < pictures:
        order.append(int(rng.choice(len(MIXES), p=[mix.share for mix in MIXES])))
        planned += MIXES[order[-1]].batch
    drawn: queue.Queue[Batch] = queue.Queue(maxsize=4)

    def draw() -> None:
        for i in order:
            drawn.put(supplies[i].batch())

    threading.Thread(target=draw, name="scene-batches", daemon=True).start()
    for _ in order:
        yield drawn.get()
