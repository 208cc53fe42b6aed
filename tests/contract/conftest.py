"""The decoders that the contract suites run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pipeline.decoders import make_decoder
from tests.contract.subject import Subject, needs_dali

ON_GPU = (
    "opencv-2-cuda",
    "torchvision-2-cuda",
    pytest.param("dali-2-cuda", marks=needs_dali),
)
"""Only where there is a GPU; elsewhere they would be a hundred skips that say the same."""


@pytest.fixture(
    scope="module",
    params=[
        "opencv-1",
        "opencv-3",
        pytest.param("dali-2", marks=needs_dali),
        *(ON_GPU if torch.cuda.is_available() else ()),
    ],
)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    kind, threads, *device = request.param.split("-")
    device = device[0] if device else "cpu"
    decoder = make_decoder(kind, threads=int(threads), device=device)
    yield Subject(decoder, device, exact=kind == "opencv")
    decoder.close()
