"""Raw predictions as a model would give them, made without one."""

from __future__ import annotations

import torch


def crowd(seed: int, n: int, classes: int, anchors: int = 200) -> torch.Tensor:
    """Raw predictions float32 (n, 4 + classes, anchors) as a crowd gives them: a few places with
    many near-equal boxes each, scores from nothing to sure. Of the usual size in pixels."""
    source = torch.Generator().manual_seed(seed)
    places = torch.rand((n, 1 + seed % 12, 4), generator=source)
    which = torch.randint(places.shape[1], (n, anchors), generator=source)
    chosen = places.gather(1, which[..., None].expand(-1, -1, 4))
    sizes = torch.tensor([640.0, 384.0, 200.0, 200.0])
    boxes = chosen * sizes + torch.randn((n, anchors, 4), generator=source) * 4
    boxes[..., 2:] = boxes[..., 2:].abs() + 1
    scores = torch.rand((n, anchors, classes), generator=source) ** (1 + classes / 4)
    return torch.cat((boxes, scores), 2).transpose(1, 2).contiguous()


def raw_of(*rows: tuple[float, float, float, float, int, float], classes: int = 3) -> torch.Tensor:
    """Raw predictions (1, 4 + classes, anchors) with one anchor per row of x1, y1, x2, y2 (bucket
    pixels), class and score."""
    raw = torch.zeros((1, 4 + classes, len(rows)))
    for anchor, (x1, y1, x2, y2, class_id, score) in enumerate(rows):
        raw[0, :4, anchor] = torch.tensor([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1])
        raw[0, 4 + class_id, anchor] = score
    return raw
