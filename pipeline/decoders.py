"""The ladder of decoders, and the choice among them at start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import cv2
import numpy as np
import torch

from pipeline.backend_speed import machine_clock
from pipeline.bucket import Bucket
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.decode_torchvision import TorchvisionDecoder
from pipeline.item import Coordinates, Header, Item
from pipeline.letterbox import letterbox
from pipeline.ports import Clock, Decoder
from schemas.errors import ConfigError, PoisonError
from schemas.frame import Encoding, FrameMessage

DecoderKind = Literal["auto", "opencv", "dali", "torchvision"]

_SAMPLE_WIDTH, _SAMPLE_HEIGHT = 1280, 720
_SAMPLE_BUCKET = Bucket("sample", 1 << 40, 384, 640, 4)
_ROUNDS = 5


class LadderDecoder:
    """Pictures that one decoder refuses go to the next, alone; the last one's word counts."""

    def __init__(self, rungs: Sequence[Decoder]) -> None:
        """Args: rungs: at least one, the preferred first. The ladder closes them."""
        if not rungs:
            raise ValueError("a ladder needs at least one decoder")
        self._rungs = tuple(rungs)

    @property
    def name(self) -> str:
        """That of the first rung."""
        return self._rungs[0].name

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        """See `Decoder.decode`. Other errors of a rung (TransientError, FatalError) pass."""
        errors = self._rungs[0].decode(items, out)
        for rung in self._rungs[1:]:
            for run in _refused(errors):
                piece = slice(run.start, run.stop)
                errors[piece] = rung.decode(items[piece], out[piece])
        return errors

    def close(self) -> None:
        for rung in self._rungs:
            rung.close()


def _refused(errors: Sequence[PoisonError | None]) -> list[range]:
    """Runs of neighbours that were refused: each is one contiguous piece of the tensor."""
    runs: list[range] = []
    for row, error in enumerate(errors):
        if error is None:
            continue
        if runs and runs[-1].stop == row:
            runs[-1] = range(runs[-1].start, row + 1)
        else:
            runs.append(range(row, row + 1))
    return runs


def make_decoder(
    kind: DecoderKind, *, threads: int, device: str, hw_decoder_load: float = 0.9
) -> Decoder:
    """The decoder for a worker. All but `opencv` have OpenCV behind them.

    Args:
        kind: `opencv`; `dali`; `torchvision` (on a GPU only); `auto`: on a GPU `dali`, or
            `torchvision` where DALI is not installed; on the CPU the faster of DALI and OpenCV on
            a sample picture, or OpenCV where DALI is not installed.
        threads: decoder threads, ≥ 1.
        device: torch device of the batches, `cpu`, `cuda` or `cuda:N`.
        hw_decoder_load: see `DaliDecoder`.

    Raises:
        ConfigError: `dali` is asked for and is not installed, `torchvision` without a GPU, or
            `threads` is below 1.
    """
    where = torch.device(device)
    if threads < 1:
        raise ConfigError(f"decoder threads must be ≥ 1, not {threads}")
    if kind == "opencv":
        return OpenCvDecoder(threads=threads)
    if kind == "torchvision":
        if where.type != "cuda":
            raise ConfigError("device.decoder is `torchvision`, which decodes on CUDA only")
        return LadderDecoder([TorchvisionDecoder(where), OpenCvDecoder(threads=threads)])
    try:
        ladder = _dali_ladder(threads, where, hw_decoder_load)
    except ImportError as error:
        if kind == "auto":
            return make_decoder(
                "torchvision" if where.type == "cuda" else "opencv", threads=threads, device=device
            )
        raise ConfigError(
            "device.decoder is `dali`, but DALI is not installed (pip install 'frameloom[dali]')"
        ) from error
    if kind == "dali" or where.type != "cpu":
        return ladder
    return _faster(ladder, OpenCvDecoder(threads=threads), machine_clock("cpu", threads))


def fills_gpu(decoder: Decoder) -> bool:
    """Whether a decoder's rows are best written on the GPU; see `Decoder.name`."""
    return decoder.name.endswith("-gpu")


def _dali_ladder(threads: int, device: torch.device, hw_decoder_load: float) -> LadderDecoder:
    # Imported here because DALI is published for Linux only.
    from pipeline.decode_dali import DaliDecoder  # noqa: PLC0415 (an extra)

    opencv = OpenCvDecoder(threads=threads)
    if device.type != "cuda":
        return LadderDecoder([DaliDecoder(threads=threads), opencv])
    device_id = torch.empty(0, device=device).get_device()
    dali = DaliDecoder(threads=threads, device_id=device_id, hw_decoder_load=hw_decoder_load)
    return LadderDecoder([dali, opencv])


def _faster(first: Decoder, second: Decoder, clock: Clock) -> Decoder:
    """The one that decodes a small batch in less time by the clock; the other is closed. It is
    processor time here: on a busy machine the time on the clock chooses by chance."""
    items = [_sample_item()] * _SAMPLE_BUCKET.max_batch
    out = torch.empty(
        (len(items), _SAMPLE_BUCKET.height, _SAMPLE_BUCKET.width, 3), dtype=torch.uint8
    )
    chosen, other = first, second
    if _seconds(second, items, out, clock) < _seconds(first, items, out, clock):
        chosen, other = second, first
    other.close()
    return chosen


def _seconds(decoder: Decoder, items: Sequence[Item], out: torch.Tensor, clock: Clock) -> float:
    """The best of some rounds after a first one that pays for the set-up."""
    decoder.decode(items, out)
    best = float("inf")
    for _ in range(_ROUNDS):
        started_at = clock()
        decoder.decode(items, out)
        best = min(best, clock() - started_at)
    return best


def _sample_item() -> Item:
    """A JPEG with about the detail of a camera's frame."""
    x = np.linspace(0.0, 40.0, _SAMPLE_WIDTH)
    y = np.linspace(0.0, 25.0, _SAMPLE_HEIGHT)[:, None]
    plane = 128 + 60 * np.sin(x + y) + 40 * np.sin(x * y)
    pixels = np.repeat(plane.astype(np.uint8)[..., None], 3, axis=2)
    data = cv2.imencode(".jpg", pixels)[1].tobytes()
    return Item(
        attempt_id=0,
        coordinates=Coordinates("sample", 0, 0),
        epoch=0,
        route="sample",
        frame=FrameMessage(
            stream_id="sample",
            seq=0,
            captured_at_us=0,
            encoding=Encoding.JPEG,
            data=memoryview(data),
        ),
        header=Header(Encoding.JPEG, _SAMPLE_WIDTH, _SAMPLE_HEIGHT),
        bucket=_SAMPLE_BUCKET,
        geometry=letterbox(
            _SAMPLE_WIDTH, _SAMPLE_HEIGHT, _SAMPLE_BUCKET.width, _SAMPLE_BUCKET.height
        ),
        received_at=0.0,
    )
