"""Half precision for a detection network: float16 inside, boxes decoded in float32."""

from __future__ import annotations

from typing import Any

import torch
from ultralytics.nn.modules.head import Detect


def to_half(network: torch.nn.Module) -> torch.nn.Module:
    """Turn a fused YOLOv8 detection network (a `DetectionModel`, eval mode) to float16, in place.

    It takes float16 planes and returns float32 predictions: between 128 and 256 strides float16
    knows eighths only, a pixel of the finest grid, so the head decodes in float32.

    Returns:
        The same network.

    Raises:
        TypeError: its head is not the plain detection head (`read_checkpoint` refuses others).
    """
    layers: Any = network.model
    head = layers[-1]
    if type(head) is not Detect:
        raise TypeError(f"a plain detection head is needed, not {type(head).__name__}")
    network.half()
    # The head's class decides how boxes are decoded; its weights and state stay what they are.
    head.__class__ = Float32Decode
    head.dfl.float()
    return network


class Float32Decode(Detect):
    """The detection head of a float16 network; what follows its convolutions runs in float32."""

    def _inference(self, x: dict[str, Any]) -> torch.Tensor:
        # Of the feature maps only shape, device and type are asked: no copy is needed to cast them.
        maps = [f.new_empty(1, dtype=torch.float32).expand(f.shape) for f in x["feats"]]
        in_full: Any = {"boxes": x["boxes"].float(), "scores": x["scores"].float(), "feats": maps}
        return super()._inference(in_full)
