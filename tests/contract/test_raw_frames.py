"""Raw frames in every decoder: the same rows as the reference, beside encoded neighbours, and the
boxes that the same picture has as a PNG."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from bench.parity import BUCKETS, CONF, DEMO_WEIGHTS, IOU, MAX_DET
from bench.scenes import HELD_OUT, Scene
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.model import load_model
from pipeline.postprocess import YoloPostprocessor
from schemas.errors import Reason
from schemas.frame import RAW_ENCODINGS, Encoding
from tests.builders_pictures import (
    PICTURES,
    bucket,
    item,
    item_of,
    picture,
    png,
    raw_frame,
    raw_item,
)
from tests.contract.subject import UNTOUCHED, Subject

RAW = sorted(RAW_ENCODINGS)
WIDE = bucket(256, 448)


@pytest.mark.parametrize("encoding", RAW)
@pytest.mark.parametrize(
    ("width", "height"), [(2, 2), (2, 400), (400, 2), (448, 256), (450, 258), (610, 412), (96, 54)]
)
def test_every_raw_encoding(subject: Subject, encoding: Encoding, width: int, height: int) -> None:
    work = raw_item(picture(width, height), encoding, WIDE)
    errors, rows = subject.decode([work], spare=1)
    assert errors == [None]
    subject.check(work, rows[0])
    assert (rows[1] == UNTOUCHED).all()


@pytest.mark.parametrize("encoding", [e for e in RAW if e is not Encoding.NV12])
def test_odd_sides(subject: Subject, encoding: Encoding) -> None:
    for width, height in ((1, 1), (1, 301), (611, 413), (449, 257)):
        work = raw_item(picture(width, height), encoding, WIDE)
        errors, rows = subject.decode([work])
        assert errors == [None]
        subject.check(work, rows[0], (width, height))


def test_raw_and_encoded_frames_share_a_batch(subject: Subject) -> None:
    works = []
    for index, (encoding, encode) in enumerate(PICTURES.values()):
        pixels = picture(102 + 10 * index, 78 + 6 * index)
        works.append(item(encode(pixels), encoding, WIDE))
        if index % 3:
            works.append(raw_item(pixels, RAW[index % len(RAW)], WIDE))
    works = works[: WIDE.max_batch]
    errors, rows = subject.decode(works)
    assert errors == [None] * len(works)
    for work, row in zip(works, rows, strict=True):
        subject.check(work, row, work.header.encoding)


@pytest.mark.parametrize("encoding", RAW)
def test_bytes_are_read_where_they_lie(subject: Subject, encoding: Encoding) -> None:
    """At an odd address inside a record, read-only."""
    message = raw_frame(picture(98, 76), encoding)
    record = b"\x01record" + bytes(message.data) + b"behind"
    view = memoryview(record)[7 : 7 + message.data.nbytes]
    work = item_of(msgspec.structs.replace(message, data=view), WIDE)
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0])


@pytest.mark.parametrize("encoding", RAW)
def test_an_array_is_a_frame_s_data(subject: Subject, encoding: Encoding) -> None:
    """Frames made in the process come as views of arrays of any shape."""
    message = raw_frame(picture(98, 76), encoding)
    shape = (-1, 98, 3) if encoding in (Encoding.RGB24, Encoding.BGR24) else (-1, 98)
    pixels = np.frombuffer(message.data, np.uint8).reshape(shape)
    work = item_of(msgspec.structs.replace(message, data=memoryview(pixels)), WIDE)
    errors, rows = subject.decode([work])
    assert errors == [None]
    subject.check(work, rows[0])


@pytest.mark.parametrize("encoding", RAW)
def test_a_size_that_its_bytes_do_not_have_is_refused(subject: Subject, encoding: Encoding) -> None:
    good = raw_item(picture(98, 76), encoding, WIDE)
    bad = replace(good, header=replace(good.header, coded_width=100))
    errors, rows = subject.decode([good, bad, good])
    assert [error is None for error in errors] == [True, False, True]
    assert errors[1] is not None
    assert (errors[1].code, errors[1].stage) == (Reason.DECODE_FAILED, "decode")
    subject.check(good, rows[0])
    subject.check(good, rows[2])


def test_a_raw_frame_gives_exactly_the_boxes_of_its_png() -> None:
    model = load_model(str(DEMO_WEIGHTS), device="cpu", conf=CONF, iou=IOU)
    post = YoloPostprocessor(model.labels, conf=CONF, iou=IOU, max_det=MAX_DET)
    into, pixels = BUCKETS[0], Scene(HELD_OUT + 1, 854, 480).frame(5.0)[0]
    works = [
        item(png(pixels), Encoding.PNG, into),
        raw_item(pixels, Encoding.BGR24, into),
        raw_item(pixels, Encoding.RGB24, into),
    ]
    decoder, answers = OpenCvDecoder(), []
    for work in works:
        rows = torch.empty((1, into.height, into.width, 3), dtype=torch.uint8)
        assert decoder.decode([work], rows) == [None]
        answers += post.detections(model.infer(rows), [work.geometry])
    assert len(answers[0]) > 2
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
