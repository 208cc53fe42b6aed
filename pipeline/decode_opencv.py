"""The OpenCV decoder: every format, on the CPU, one picture per thread. The reference (GIF is read
by Pillow, to the same pixels).

Its rows equal `cv2.imdecode(data, IMREAD_COLOR)` followed by Ultralytics' `LetterBox(auto=False)`
and a swap to RGB, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import cv2
import numpy as np
import torch

from pipeline.bucket import Bucket
from pipeline.decode_avif import decode_avif
from pipeline.decode_failure import failure, opencv_failure, out_of_memory
from pipeline.decode_gif import decode_gif
from pipeline.decode_raw import place_raw
from pipeline.item import Item
from pipeline.jpeg_repair import repaired
from pipeline.pixel_budget import DECODING_PIXELS, PixelBudget, stored_pixels
from pipeline.place import Pixels, place, turned
from pipeline.png_stream import unpacks_too_far
from pipeline.slot import frames_bytes
from pipeline.tiff_directory import TiffDirectory
from schemas.errors import PoisonError
from schemas.frame import RAW_ENCODINGS, Encoding

# The probe has read the orientation, and it is the one that counts: OpenCV must not read it again.
_FLAGS = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION


class OpenCvDecoder:
    """Decodes with OpenCV on a thread pool of its own.

    A CUDA `out` is filled through a pinned buffer and a copy on the current `cuda_stream`, which
    the caller's later work on that stream waits for.

    Setting up one turns OpenCV's own threads off for the whole process: the pool is the
    parallelism, and OpenCV's threads would only compete with the model's. However many they are,
    they decode at most `DECODING_PIXELS` at a time.
    """

    def __init__(self, *, threads: int = 1) -> None:
        if threads < 1:
            raise ValueError(f"threads must be ≥ 1, not {threads}")
        cv2.setNumThreads(1)
        # What it says of a picture is said in the dead letter, and nobody may fill the log.
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        self._pool = ThreadPoolExecutor(threads, "decode") if threads > 1 else None
        self._budget = PixelBudget(DECODING_PIXELS)
        self._staging: torch.Tensor | None = None
        self._copied: torch.cuda.Event | None = None

    @property
    def name(self) -> str:
        return "opencv"

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        """See `Decoder.decode`. Raises TransientError when memory runs out."""
        if out.is_cuda:
            return self._decode_to_device(items, out)
        return self._decode_to_host(items, out)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _decode_to_host(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        rows: list[Pixels] = list(out.numpy()[: len(items)])
        if self._pool is None or len(items) == 1:
            return [_decode_row(item, row) for item, row in zip(items, rows, strict=True)]
        pending = [
            self._pool.submit(self._decode_in_turn, item, row)
            for item, row in zip(items, rows, strict=True)
        ]
        # All of them, also after one has raised: nobody may write to rows that are handed on.
        wait(pending)
        return [each.result() for each in pending]

    def _decode_in_turn(self, item: Item, row: Pixels) -> PoisonError | None:
        with self._budget.held(stored_pixels(item)):
            return _decode_row(item, row)

    def _decode_to_device(
        self, items: Sequence[Item], out: torch.Tensor
    ) -> list[PoisonError | None]:
        if self._copied is not None:
            self._copied.synchronize()  # the last batch may still be on its way out of the buffer
        staging = self._staging_like(out, items[0].bucket)
        errors = self._decode_to_host(items, staging)
        out[: len(items)].copy_(staging[: len(items)], non_blocking=True)
        self._copied = self._copied or torch.cuda.Event(blocking=True)
        self._copied.record()
        return errors

    def _staging_like(self, out: torch.Tensor, bucket: Bucket) -> torch.Tensor:
        """The pinned buffer as `out`'s shape. It grows to the largest batch of a bucket at once: a
        ladder asks for pieces of any size, and each growth would stop the device."""
        if self._staging is None or self._staging.numel() < out.numel():
            nbytes = max(out.numel(), frames_bytes(bucket))
            self._staging = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        return self._staging[: out.numel()].view(out.shape)


def _decode_row(item: Item, row: Pixels) -> PoisonError | None:
    """Decode, turn and letterbox one picture into `row`; the error if it cannot be done.

    Every exception that OpenCV has for us is mapped here, by type: `cv2.error` means the picture,
    unless its code says that memory ran out.
    """
    try:
        if item.header.encoding in RAW_ENCODINGS:
            return place_raw(item, row)
        pixels = _read(item)
        if isinstance(pixels, PoisonError):
            return pixels
        place(turned(pixels, item.header.orientation), item.geometry, row)
    except cv2.error as error:
        return opencv_failure(error)
    except MemoryError as error:
        raise out_of_memory() from error
    return None


def _read(item: Item) -> Pixels | PoisonError:
    """The stored pixels, before they are turned."""
    header, data = item.header, item.frame.data
    if len(data) == 0:
        return failure("the picture is empty")
    if unpacks_too_far(item):
        return failure("the PNG holds far more than its picture")
    pixels = _unchecked(data, header.encoding)
    if isinstance(pixels, PoisonError):
        return pixels
    if pixels is None:
        return failure("OpenCV cannot decode the picture (it is damaged or cut short)")
    height, width = pixels.shape[:2]
    if (width, height) != (header.coded_width, header.coded_height):
        claimed = f"{header.coded_width}×{header.coded_height}"
        return failure(f"the header says {claimed} pixels, the picture has {width}×{height}")
    return pixels


def _unchecked(data: memoryview, encoding: Encoding) -> Pixels | PoisonError | None:
    """The pixels as the format's own way has them; None or why, if it has none."""
    match encoding:
        case Encoding.GIF:
            return decode_gif(data)
        case Encoding.AVIF:
            return decode_avif(data)
        case Encoding.TIFF:
            try:
                return imdecode(TiffDirectory(data).upright())
            except PoisonError as error:
                return failure(error.detail)
        case _:
            pixels = imdecode(data)
    if pixels is None and encoding is Encoding.JPEG:
        whole = repaired(data)
        return None if whole is None or whole is data else imdecode(whole)
    return pixels


def imdecode(data: memoryview | bytes) -> Pixels | None:
    """Stored pixels without orientation; None if OpenCV cannot. `data` must not be empty."""
    flat = np.frombuffer(data, np.uint8)
    return cv2.imdecode(flat, _FLAGS)  # pyright: ignore[reportReturnType] # typed without None
