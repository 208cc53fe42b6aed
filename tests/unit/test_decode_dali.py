"""What DALI must not be shown, and what it does alone."""

from __future__ import annotations

import cv2
import pytest
import torch

pytest.importorskip("nvidia.dali", reason="DALI is not installed")

from pipeline import jpeg_vetting
from pipeline.decode_dali import DaliDecoder
from pipeline.item import Header
from schemas.errors import FatalError, Reason, TransientError
from schemas.frame import Encoding
from tests.builders_pictures import (
    PICTURES,
    bucket,
    chunk,
    exif,
    item,
    jpeg,
    oriented,
    picture,
    png,
    riff,
    vp8x,
    webp,
    with_chunks,
)

INTO = bucket(32, 64)
SMALL = picture(61, 41)


def rows(count: int) -> torch.Tensor:
    return torch.zeros((count, 32, 64, 3), dtype=torch.uint8)


HOSTILE = {
    "png": (
        with_chunks(png(SMALL), chunk(b"eXIf", exif(6), length=0xFFFFFFF0)),
        Encoding.PNG,
    ),
    "png, behind the pixels": (
        png(SMALL)[:-12] + chunk(b"eXIf", exif(6), length=0x7FFFFFF0),
        Encoding.PNG,
    ),
    "webp": (
        riff(vp8x(61, 41, flags=8), (b"VP8 ", webp(SMALL)[20:]))
        + b"EXIF\xf0\xff\xff\xff"
        + exif(6),
        Encoding.WEBP,
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_exif_that_claims_gigabytes_never_reaches_dali(kind: str) -> None:
    data, encoding = HOSTILE[kind]
    decoder = DaliDecoder()
    work = item(data, encoding, INTO, Header(encoding, 61, 41))
    (error,) = decoder.decode([work], rows(1))
    assert error is not None
    assert error.code is Reason.DECODE_FAILED
    assert not decoder._pipelines, "nothing was run"


def test_takes_every_kind_but_cmyk_and_turned_jpegs_itself() -> None:
    decoder = DaliDecoder()
    works = [item(encode(SMALL), encoding, INTO) for encoding, encode in PICTURES.values()]
    errors = decoder.decode(works, rows(len(works)))
    refused = {kind for kind, error in zip(PICTURES, errors, strict=True) if error is not None}
    assert refused == {"jpeg-cmyk", "jpeg-cmyk-unmarked"}
    turned = [item(oriented(SMALL, Encoding.JPEG, o), Encoding.JPEG, INTO) for o in range(1, 9)]
    assert decoder.decode(turned, rows(8)) == [None] * 8
    decoder.close()


def test_one_graph_per_bucket_serves_any_batch_size() -> None:
    decoder = DaliDecoder()
    work = item(jpeg(SMALL), Encoding.JPEG, INTO)
    graphs = set()
    for size in (1, 5, 2, 32, 1):
        assert decoder.decode([work] * size, rows(size)) == [None] * size
        graphs.update(map(id, decoder._pipelines.values()))
    assert len(graphs) == 1


@pytest.mark.parametrize(
    ("code", "refused"), [(cv2.Error.StsAssert, True), (cv2.Error.StsNoMem, False)]
)
def test_repairing_a_jpeg_may_fail(
    monkeypatch: pytest.MonkeyPatch, code: int, *, refused: bool
) -> None:
    error = cv2.error("text")
    error.code, error.err = code, "cause"

    def fail(_data: object) -> None:
        raise error

    monkeypatch.setattr(jpeg_vetting, "repaired", fail)
    work = item(jpeg(SMALL)[:-2], Encoding.JPEG, INTO)
    if refused:
        (found,) = DaliDecoder().decode([work], rows(1))
        assert found is not None
        assert found.code is Reason.DECODE_FAILED
    else:
        with pytest.raises(TransientError, match="memory"):
            DaliDecoder().decode([work], rows(1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_fatal() -> None:
    work = item(jpeg(SMALL), Encoding.JPEG, INTO)
    with pytest.raises(FatalError, match="32x64"):
        DaliDecoder(device_id=0).decode([work], rows(1))


def test_names_and_threads() -> None:
    assert DaliDecoder().name == "dali-cpu"
    assert DaliDecoder(device_id=0).name == "dali-gpu"
    with pytest.raises(ValueError, match="≥ 1"):
        DaliDecoder(threads=0)
