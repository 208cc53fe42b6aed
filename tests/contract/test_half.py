"""A float16 network against the float32 one it was made from."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.half import to_half
from pipeline.model import load_model
from schemas.errors import ConfigError
from tests.builders_models import a_checkpoint, a_network


@pytest.fixture(scope="module")
def network() -> Any:
    return a_network(nc=3).fuse(verbose=False).float().eval()


@torch.inference_mode()
def test_boxes_are_decoded_in_float32(network: Any) -> None:
    planes = torch.rand(2, 3, 64, 2048)
    full = network(planes)[0]
    half = to_half(copy.deepcopy(network))(planes.half())[0]
    assert half.dtype == torch.float32
    # Half of float16's step at 2048 pixels would be 0.5, and at 256 strides of 8 a whole pixel.
    torch.testing.assert_close(half[:, :2], full[:, :2], rtol=0.0, atol=0.25)
    torch.testing.assert_close(half[:, 4:], full[:, 4:], rtol=0.0, atol=5e-3)


def test_other_heads_are_refused() -> None:
    with pytest.raises(TypeError, match="Segment"):
        to_half(a_network("v8/yolov8-seg", nc=1))


def test_half_precision_needs_cuda(network: Any, tmp_path: Path) -> None:
    file = a_checkpoint(tmp_path / "narrow.pt", network)
    with pytest.raises(ConfigError, match="fp16 needs CUDA"):
        load_model(str(file), device="cpu", conf=0.25, iou=0.7, half=True)
