"""A device whose process runs out of main memory: `python -m tests.contract.short_of_memory BACKEND
WEIGHTS FOLDER`. Prints one JSON object. A process of its own, because the limit is the process's.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
from pathlib import Path

import torch

from pipeline.backend_files import Loading
from pipeline.backends import ModelOrder, open_model
from pipeline.bucket import Bucket
from pipeline.item import Batch, Item
from pipeline.ports import BatchDone, Lane, Model
from pipeline.postprocess import YoloPostprocessor
from pipeline.slots import ThreadedDevice
from schemas.result import ClosedBy
from schemas.settings import Backend, Precision
from tests.builders import an_item
from tests.fakes.lane import FakeDecoder

BUCKET = Bucket("wide", 1 << 40, 320, 320, 32)
ENOUGH_FOR = 8
"""A batch of more frames than this finds no memory, while memory is short."""
LEFT_BYTES = 1 << 20
DEADLINE_S = 300.0


class Short:
    """A model that real want of memory meets: its process may take no more while it runs too many
    frames. Only then: libraries may hang where threads cannot start either."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.short = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def infer(self, frames: torch.Tensor) -> torch.Tensor:
        if not self.short or len(frames) <= ENOUGH_FOR:
            return self._model.infer(frames)
        unlimited = resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_AS, (_held_bytes() + LEFT_BYTES, unlimited))
        try:
            return self._model.infer(frames)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (unlimited, unlimited))


def main(backend: str, weights: str, folder: str) -> None:
    torch.set_num_threads(1)
    loading = Loading(device="cpu", conf=0.001, iou=0.7, threads=1)
    small = (Bucket("wide", 1 << 40, 320, 320, 2),)
    order = ModelOrder(weights, Backend(backend), Precision.AUTO, small, loading, Path(folder))
    model = Short(open_model(order).model)
    post = YoloPostprocessor(model.labels, conf=0.001, iou=0.7, max_det=20)
    device = ThreadedDevice({"default": Lane(FakeDecoder(), model, post)})
    device.start(_batch(0, range(2)))
    _done(device)
    model.short = True
    short = _answer(device, 1)
    capped = _answer(device, 2, most=min(short["fits"] or 1, ENOUGH_FOR))
    model.short = False
    found = {"short": short, "capped": capped, "plenty": _answer(device, 3)}
    sys.stdout.write(json.dumps(found) + "\n")
    device.close()
    device.join(DEADLINE_S)


def _answer(device: ThreadedDevice, batch_id: int, *, most: int = BUCKET.max_batch) -> dict:
    device.start(_batch(batch_id, range(most)))
    done = _done(device)
    return {
        "fits": done.fits,
        "errors": [str(o.error) for o in done.outcomes if o.error is not None],
        "boxes": [[[*d.box, d.score] for d in outcome.detections] for outcome in done.outcomes],
    }


def _batch(batch_id: int, levels: range) -> Batch:
    items: list[Item] = [
        an_item(seq=level, data=bytes([level]), bucket=BUCKET, size=(320, 320)) for level in levels
    ]
    return Batch(batch_id, "default", BUCKET, tuple(items), ClosedBy.FULL, 0.0)


def _done(device: ThreadedDevice) -> BatchDone:
    changed, done = threading.Event(), list[BatchDone]()
    device.listen(changed.set)
    while not done:
        changed.clear()
        done.extend(device.collect())
        if device.failure is not None:
            raise device.failure
        assert done or changed.wait(DEADLINE_S)
    return done[0]


def _held_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main(*sys.argv[1:])
