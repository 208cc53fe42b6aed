"""YOLOv8 weights that nobody trained but that give boxes: `write_random_yolov8(path)`.

Fresh weights score nothing above 0.02, so they test nothing. Here the normalisation layers are
fitted to real pictures, and the last layers are spread and shifted until about `share` of all
anchors pass the usual threshold. The same seed gives the same file on the same torch build.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
import ultralytics
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import ASSETS, YAML

from bench.scenes import Scene

_CONF = 0.25
_SIZE = (640, 384)
"""Width and height that the pictures are fitted at."""
_MOST_CHANNELS = {0.75: 768, 1.0: 512, 1.25: 512}
"""Width → ceiling of a layer's channels before it, in the sizes m, l and x; 1024 otherwise."""
_SPREAD = 1.0
"""Standard deviation of the class logits."""


def write_random_yolov8(
    path: Path,
    *,
    seed: int = 14,
    width: float = 0.25,
    depth: float = 0.33,
    classes: int = 80,
    share: float = 0.04,
) -> Path:
    """Write an Ultralytics checkpoint of YOLOv8 with random weights that give boxes.

    Args:
        path: the `.pt` file to write.
        seed: of the weights. The default gives boxes on every picture of `bench.parity_pictures`.
        width, depth: 0.25 and 0.33 are YOLOv8n, 0.75 and 0.67 YOLOv8m.
        classes: ≥ 1, labelled `class0`, `class1`, …
        share: of the anchors that score above 0.25 on photographs, 0..1.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_yolov8(width=width, depth=depth, classes=classes)
        with torch.no_grad():
            _fit(network, torch.cat(list(_pictures())), share)
    network.args = {"task": "detect"}
    torch.save({"model": network.half(), "ema": None, "train_args": network.args}, path)
    return path


def build_yolov8(*, width: float = 0.25, depth: float = 0.33, classes: int = 80) -> Any:
    """YOLOv8's own architecture (a `DetectionModel`), with torch's fresh weights."""
    architecture = Path(ultralytics.__file__).parent / "cfg/models/v8/yolov8.yaml"
    recipe: Any = YAML.load(str(architecture))
    scale = [depth, width, _MOST_CHANNELS.get(width, 1024)]
    recipe |= {"scales": {"n": scale}, "scale": "n", "nc": classes}
    recipe.pop("yaml_file", None)
    network: Any = DetectionModel(recipe, ch=3, nc=classes, verbose=False)
    network.names = {i: f"class{i}" for i in range(classes)}
    return network


def _pictures() -> Iterator[torch.Tensor]:
    """Float planes (1, 3, h, w) in 0..1: the two photographs and two scenes."""
    for name in ("bus.jpg", "zidane.jpg"):
        picture = cv2.imread(str(ASSETS / name))
        if picture is None:
            raise FileNotFoundError(ASSETS / name)
        yield _planes(picture)
    for seed in (1, 2):
        yield _planes(Scene(seed, 640, 384).frame(5.0)[0])


def _planes(picture: npt.NDArray[Any]) -> torch.Tensor:
    resized = cv2.resize(picture, _SIZE)
    planes = np.ascontiguousarray(resized[..., ::-1].transpose(2, 0, 1))
    return torch.from_numpy(planes)[None].float() / 255


def _fit(network: Any, pictures: torch.Tensor, share: float) -> None:
    """Normalise every layer on the pictures, then spread and shift the head's last layers."""
    layers = network.model
    first = layers[0].conv
    # Kernels without a mean see contrast, not brightness: bright and dark pictures score alike.
    first.weight.sub_(first.weight.mean((1, 2, 3), keepdim=True))
    _normalise(network, pictures)
    head: Any = layers[-1]
    _level(network, head, pictures)
    _scale(head.cv3, _SPREAD / float(_logits(network, pictures).std()))
    _scale(head.cv2, 4.0)
    best = _logits(network, pictures).amax(1)
    shift = math.log(_CONF / (1 - _CONF)) - float(best.quantile(1 - share, dim=1).mean())
    for branch in head.cv3:
        branch[-1].bias.add_(shift)


def _level(network: Any, head: Any, pictures: torch.Tensor) -> None:
    """Take from the class weights whatever tells one picture's average from another's, so that
    every picture gets some boxes and none is full of them."""
    for branch in head.cv3:
        last = branch[-1]
        seen: list[torch.Tensor] = []

        def keep(_: torch.nn.Module, args: tuple[torch.Tensor], seen: Any = seen) -> None:
            seen.append(args[0].mean((2, 3)))

        hook = last.register_forward_pre_hook(keep)
        network(pictures)
        hook.remove()
        span = torch.linalg.qr(seen[0].T).Q
        weights = last.weight[:, :, 0, 0]
        weights.sub_(weights @ span @ span.T)


def _normalise(network: Any, pictures: torch.Tensor) -> None:
    norms = [m for m in network.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    network.train()
    network(pictures)
    network.eval()
    for norm in norms:
        norm.momentum = 0.03


def _logits(network: Any, pictures: torch.Tensor) -> torch.Tensor:
    """Class logits (pictures, classes, anchors)."""
    return network(pictures)[1]["scores"]


def _scale(branches: Any, factor: float) -> None:
    for branch in branches:
        last = branch[-1]
        last.weight.mul_(factor)
        last.bias.zero_()
