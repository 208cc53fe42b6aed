"""The witness must be harmless to every decoder."""

from __future__ import annotations

import pytest
import torch

from pipeline.decoders import make_decoder
from pipeline.probe import ProbeLimits, probe
from pipeline.witness import harmless
from tests.builders import LARGE, SMALL, an_item


@pytest.mark.parametrize("kind", ["opencv", "dali"])
@pytest.mark.parametrize("bucket", [SMALL, LARGE])
def test_every_decoder_reads_the_witness(kind: str, bucket: object) -> None:
    if kind == "dali":
        pytest.importorskip("nvidia.dali")
    witness = harmless(an_item(bucket=bucket, data=b"broken", size=(4000, 1)))
    decoder = make_decoder(kind, threads=1, device="cpu")
    out = torch.zeros((1, witness.bucket.height, witness.bucket.width, 3), dtype=torch.uint8)
    try:
        assert decoder.decode([witness], out) == [None]
    finally:
        decoder.close()
    assert (out.to(torch.int16) - 114).abs().max() <= 2, "grey on grey"


def test_its_header_is_true() -> None:
    witness = harmless(an_item())
    assert probe(witness.frame, ProbeLimits(max_pixels=64, max_scans=1)) == witness.header
