"""JPEGs decoded and placed on the GPU by torch alone (torchvision's nvJPEG decoder), for machines
without DALI."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torchvision.io

from pipeline.decode_failure import failure, out_of_memory
from pipeline.item import Item
from pipeline.jpeg_vetting import vetted_jpeg
from pipeline.pixel_budget import DECODING_PIXELS_ON_GPU, within
from pipeline.place_torch import place_on_device
from schemas.errors import PoisonError
from schemas.frame import Encoding

_RGB = torchvision.io.ImageReadMode.RGB.value


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """One JPEG: its row in `out`, and its bytes."""

    row: int
    item: Item
    encoded: memoryview | bytes


class TorchvisionDecoder:
    """JPEGs on one device; everything else is refused and belongs to the ladder's next decoder.

    nvJPEG repeats colour samples where other decoders interpolate them, so edges of colour differ
    by more than DALI's; docs/performance.md says how much once a GPU has run it.

    Args:
        device: `cuda:N`. With `cpu` torchvision's decoder for processors takes its place, so that
            everything around it can be tested.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._read: torch.cuda.Event | None = None

    @property
    def name(self) -> str:
        return "torchvision-gpu" if self._device.type == "cuda" else "torchvision-cpu"

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        """See `Decoder.decode`. Raises TransientError when memory runs out."""
        orders: list[_Order] = []
        errors: list[PoisonError | None] = [None] * len(items)
        try:
            for row, item in enumerate(items):
                encoded = _vetted(item)
                if isinstance(encoded, PoisonError):
                    errors[row] = encoded
                else:
                    orders.append(_Order(row, item, encoded))
            for piece in within([order.item for order in orders], DECODING_PIXELS_ON_GPU):
                for order, error in self._decode_apart(orders[piece.start : piece.stop], out):
                    errors[order.row] = error
        except torch.OutOfMemoryError as error:
            raise out_of_memory() from error
        return errors

    def close(self) -> None:
        """Nothing is held."""

    def _decode_apart(
        self, orders: Sequence[_Order], out: torch.Tensor
    ) -> list[tuple[_Order, PoisonError | None]]:
        """All at once, or one by one when that fails: the decoder fails a list for one picture and
        does not say which."""
        if not orders:
            return []
        pictures = self._decoded(orders)
        if pictures is not None:
            placed = [
                (order, _place(order.item, pixels, out[order.row]))
                for order, pixels in zip(orders, pictures, strict=True)
            ]
            self._mark_read(out)
            return placed
        if len(orders) == 1:
            return [(orders[0], failure("nvJPEG cannot decode the picture"))]
        return [done for order in orders for done in self._decode_apart([order], out)]

    def _decoded(self, orders: Sequence[_Order]) -> list[torch.Tensor] | None:
        """uint8 (3, height, width) each, as stored; None when one of them is broken."""
        if self._read is not None:
            # The decoder writes on a stream of its own, into memory of ours that may have just been
            # freed with reads of it still queued, and does not wait for them (pytorch/vision 9606).
            self._read.synchronize()
        encoded = [bytes_as_tensor(order.encoded) for order in orders]
        try:
            if self._device.type == "cuda":
                return torch.ops.image.decode_jpegs_cuda(encoded, _RGB, self._device)
            return [torch.ops.image.decode_jpeg(each, _RGB, False) for each in encoded]  # noqa: FBT003 (takes no keywords)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError:
            return None

    def _mark_read(self, out: torch.Tensor) -> None:
        if out.is_cuda:
            self._read = self._read or torch.cuda.Event(blocking=True)
            self._read.record(torch.cuda.current_stream(out.device))


def _vetted(item: Item) -> memoryview | bytes | PoisonError:
    """The bytes that nvJPEG may see, or why it may not."""
    if item.header.encoding is not Encoding.JPEG:
        return failure(f"{item.header.encoding.value} is left to the next decoder")
    if len(item.frame.data) == 0:
        return failure("the picture is empty")
    return vetted_jpeg(item.frame.data)


def _place(item: Item, pixels: torch.Tensor, row: torch.Tensor) -> PoisonError | None:
    """Place a decoded picture, unless its size is not what its header claimed."""
    header = item.header
    _, height, width = pixels.shape
    if (width, height) != (header.coded_width, header.coded_height):
        claimed = f"{header.coded_width}×{header.coded_height}"
        return failure(f"the header says {claimed} pixels, the picture has {width}×{height}")
    place_on_device(pixels, header.orientation, item.geometry, row)
    return None


def bytes_as_tensor(data: memoryview | bytes) -> torch.Tensor:
    """uint8 (len(data),) over the bytes where they lie. To be read only, and only while `data`
    lives: torch has no read-only tensors, and warns of making one from read-only memory."""
    flat = np.frombuffer(data, np.uint8)
    pointer = flat.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    return torch.from_numpy(np.ctypeslib.as_array(pointer, shape=flat.shape))
