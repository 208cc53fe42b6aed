"""Every input through a broker and a worker with the demo model: one picture in all its forms."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bench.parity import CONF, DEMO_WEIGHTS, IOU, MAX_DET, compare
from bench.scenes import HELD_OUT, Scene
from pipeline.decoders import make_decoder
from pipeline.model import load_model
from pipeline.ports import Lane
from pipeline.postprocess import YoloPostprocessor
from schemas.codec import write_frame
from schemas.frame import RAW_ENCODINGS
from schemas.result import Status
from schemas.settings import BucketSettings
from tests.assertions import each_once
from tests.builders_formats import FORMATS
from tests.builders_pictures import jpeg, png, raw_frame, without_tables
from tests.integration.kit import Bench, Sent, a_bench, fake_machinery, running, sources
from workers.worker import Worker

pytestmark = pytest.mark.broker

BUCKET = BucketSettings(name="480p", max_source_pixels=1 << 20, height=256, width=448, max_batch=8)
KINDS = (
    "bmp-24", "bmp-rle8", "bmp-16-565", "tiff-tiles", "tiff-big-endian", "tiff-16", "tiff-jpeg",
    "gif", "gif-inside", "avif", "avif-10",
)  # fmt: skip
EXACT = ("bmp-24", "tiff-tiles", "tiff-big-endian", "rgb24", "bgr24")
"""These hold the PNG's pixels."""
MISLEADING = ("gif-inside", "gray8")
"""In these the demo model need not see the same: it lies elsewhere, it has no colours."""


def a_lane() -> Lane:
    model = load_model(str(DEMO_WEIGHTS), device="cpu", conf=CONF, iou=IOU)
    return Lane(
        make_decoder("opencv", threads=2, device="cpu"),
        model,
        YoloPostprocessor(model.labels, conf=CONF, iou=IOU, max_det=MAX_DET),
    )


async def a_bench_with_pictures(broker: str, unique: Callable[[str], str]) -> Bench:
    bench = await a_bench(broker, unique)
    route = msgspec.structs.replace(bench.route, buckets=[BUCKET])
    return Bench(msgspec.structs.replace(bench.settings, routes=[route]))


async def test_one_picture_in_every_form_gets_its_boxes(
    broker: str, unique: Callable[[str], str]
) -> None:
    pixels = Scene(HELD_OUT + 1, 640, 360).frame(5.0)[0]
    bare = {"png": png(pixels), "jpeg-no-tables": without_tables(jpeg(pixels))}
    bare |= {kind: FORMATS[kind][1](pixels) for kind in KINDS}
    values = bare | {e.value: write_frame(raw_frame(pixels, e)) for e in sorted(RAW_ENCODINGS)}
    broken = FORMATS["gif"][1](pixels)[:3000]
    records = [Sent(value, key=kind.encode()) for kind, value in values.items()]
    bench = await a_bench_with_pictures(broker, unique)
    sent = await bench.send(*records, Sent(broken, key=b"broken"))
    worker = Worker(bench.settings, fake_machinery(bench.settings, a_lane()))
    async with running(worker):
        results = await bench.results(len(records))
        (refused,) = await bench.dead_letters(1)
    each_once(sources(results), sent[:-1])
    assert refused.key == b"broken"
    assert dict(refused.headers)["fl-reason"] == b"decode_failed"

    kinds = list(values)
    answers = {kinds[result.source.offset]: result for result in results}
    reference = answers["png"]
    assert len(reference.detections) > 2
    for kind, answer in answers.items():
        assert answer.status is Status.OK
        if kind in EXACT:
            assert answer.detections == reference.detections, kind
        elif kind not in MISLEADING:
            difference = compare(reference.detections, answer.detections)
            assert 2 * difference.found >= difference.expected, kind
        if kind != "gif-inside":
            assert (answer.width, answer.height) == (640, 360), kind
