"""The DALI decoder: on the CPU, or on a GPU (`mixed`) by the same graph.

One graph per bucket: decode, resize, turn, pad. Sizes, turn and place come per picture from the
item, never from the picture, so the geometry is the one that every other part uses. Rows differ
from the OpenCV decoder's by at most one grey level, which is DALI's rounding in the resize.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from nvidia.dali import fn
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline, pipeline_def
from nvidia.dali.plugin.pytorch.torch_utils import feed_ndarray
from nvidia.dali.types import DALIDataType, DALIImageType

from pipeline.bucket import Bucket
from pipeline.decode_failure import failure, out_of_memory
from pipeline.item import Item
from pipeline.jpeg_vetting import vetted_jpeg
from pipeline.letterbox import PAD_VALUE
from pipeline.orientation import turn_of
from pipeline.pixel_budget import DECODING_PIXELS, DECODING_PIXELS_ON_GPU, within
from pipeline.png_stream import unpacks_too_far
from pipeline.probe_webp import EXIF_FLAG
from schemas.errors import FatalError, PoisonError
from schemas.frame import Encoding

_ENCODINGS = frozenset({Encoding.JPEG, Encoding.PNG, Encoding.WEBP})
_PNG_EXIF = re.compile(rb"eXIf")
_WEBP_FLAGS_AT = 20
_FED_BATCHES = 8
"""As many as there can be slots."""


class DaliDecoder:
    """Decodes with DALI. `device_id` None means the CPU, else the GPU of that number.

    Takes JPEG, PNG and WebP; other encodings, and raw frames, are refused and belong to the next
    decoder of the ladder: what cameras do not send need not meet one more parser. So are two kinds
    of those three. PNG and WebP files that carry EXIF: DALI's own readers allocate what a chunk's
    length claims (4 GB for a record of 2 KB), while the EXIF of a JPEG is bounded by its segment.
    CMYK: without Adobe's marker DALI shows the negative of what OpenCV shows (117 grey levels).
    """

    def __init__(
        self, *, threads: int = 1, device_id: int | None = None, hw_decoder_load: float = 0.9
    ) -> None:
        """Args:
        threads: of the processor, ≥ 1.
        device_id: see above.
        hw_decoder_load: share of a batch's JPEGs for the GPU's JPEG engine, 0..1, where it has one;
            the rest is decoded by its other cores meanwhile.
        """
        if threads < 1:
            raise ValueError(f"threads must be ≥ 1, not {threads}")
        self._hw_decoder_load = hw_decoder_load
        # A GPU may still read what it was fed when `run` has returned. By the time that so many
        # later batches were fed, their predecessors' frames have been waited for.
        self._fed: deque[dict[str, object]] = deque(maxlen=_FED_BATCHES)
        self._threads = threads
        self._device_id = device_id
        self._pixels = DECODING_PIXELS if device_id is None else DECODING_PIXELS_ON_GPU
        self._pipelines: dict[Bucket, Pipeline] = {}

    @property
    def name(self) -> str:
        return "dali-cpu" if self._device_id is None else "dali-gpu"

    def decode(self, items: Sequence[Item], out: torch.Tensor) -> list[PoisonError | None]:
        """See `Decoder.decode`. Raises TransientError when memory runs out, and FatalError when
        the graph cannot be built (the GPU or the installation is broken)."""
        orders: list[_Order] = []
        errors: list[PoisonError | None] = [None] * len(items)
        for row, item in enumerate(items):
            encoded = _vetted(item)
            if isinstance(encoded, PoisonError):
                errors[row] = encoded
            else:
                orders.append(_Order(row, item, np.frombuffer(encoded, np.uint8)))
        # A graph holds all its pictures decoded at once.
        for piece in within([order.item for order in orders], self._pixels):
            for order, error in self._decode_apart(orders[piece.start : piece.stop], out):
                errors[order.row] = error
        return errors

    def close(self) -> None:
        self._pipelines.clear()

    def _decode_apart(
        self, orders: Sequence[_Order], out: torch.Tensor
    ) -> list[tuple[_Order, PoisonError | None]]:
        """All at once, or one by one when that fails: DALI fails a batch for one bad picture and
        does not say which. One by one costs the batch's work once more, whatever their number."""
        if not orders:
            return []
        failed = self._run(orders, out)
        if failed is None:
            return [(order, None) for order in orders]
        if len(orders) == 1:
            return [(orders[0], failed)]
        return [done for order in orders for done in self._decode_apart([order], out)]

    def _run(self, orders: Sequence[_Order], out: torch.Tensor) -> PoisonError | None:
        """Decode `orders` into their rows; why it failed, if it did (rows are then unspecified).

        Every exception that DALI has for us is mapped here, by type: it raises RuntimeError for
        any failure inside the graph.
        """
        bucket = orders[0].item.bucket
        graph = self._pipeline(bucket)
        cuda_stream = torch.cuda.current_stream(out.device) if out.is_cuda else None
        try:
            fed = _inputs(orders)
            if cuda_stream is not None:
                self._fed.append(fed)
            # On a GPU the rows come ordered in the slot's stream, before they are there: the next
            # batch's work on the processor overlaps this one's on the GPU.
            rows, shapes = graph.run(cuda_stream, **fed)
            misfit = _misfit(orders, np.array(shapes.as_tensor()))
            if misfit is not None:
                return misfit
            if len(orders) == orders[-1].row + 1:
                feed_ndarray(rows.as_tensor(), out[: len(orders)], cuda_stream=cuda_stream)
            else:
                for index, order in enumerate(orders):
                    feed_ndarray(rows[index], out[order.row], cuda_stream=cuda_stream)
        except RuntimeError:
            del self._pipelines[bucket]  # DALI calls it invalid; a new one takes some 20 ms
            return failure("DALI cannot decode the picture")
        except MemoryError as error:
            del self._pipelines[bucket]
            raise out_of_memory() from error
        return None

    def _pipeline(self, bucket: Bucket) -> Pipeline:
        graph = self._pipelines.get(bucket)
        if graph is None:
            try:
                graph = _graph(
                    bucket.height,
                    bucket.width,
                    gpu=self._device_id is not None,
                    batch_size=bucket.max_batch,
                    num_threads=self._threads,
                    device_id=self._device_id,
                    # Each call feeds one batch and takes it: the slots are the queue of batches
                    # that are fetched ahead, and a second queue here would only hold memory.
                    prefetch_queue_depth=1,
                    hw_decoder_load=self._hw_decoder_load,
                    enable_conditionals=True,
                )
                graph.build()
            except RuntimeError as error:
                raise FatalError(f"DALI's graph for {bucket.name} cannot be built") from error
            self._pipelines[bucket] = graph
        return graph


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """One picture for DALI: its row in `out`, and its bytes, 1-D uint8."""

    row: int
    item: Item
    encoded: npt.NDArray[np.uint8]


@pipeline_def
def _graph(
    height: int, width: int, *, gpu: bool, hw_decoder_load: float
) -> tuple[DataNode, DataNode]:
    """Encoded bytes → (uint8 rows (height, width, 3) RGB, stored shapes (height, width, 3))."""
    encoded = _source("encoded", DALIDataType.UINT8, ndim=1)
    resize_x = _source("resize_x", DALIDataType.FLOAT, ndim=0)
    resize_y = _source("resize_y", DALIDataType.FLOAT, ndim=0)
    transpose = _source("transpose", DALIDataType.BOOL, ndim=0)
    corner = _source("corner", DALIDataType.INT32, ndim=1)
    stored = fn.decoders.image(
        encoded,
        device="mixed" if gpu else "cpu",
        output_type=DALIImageType.RGB,
        # The probe has read the orientation. DALI reads it twice, in two ways, and where the two
        # disagree it writes past its buffer.
        adjust_orientation=False,
        jpeg_fancy_upsampling=True,  # as the CPU decoders do
        hw_decoder_load=hw_decoder_load,
    )
    # A negative size mirrors. Without the two switches DALI filters otherwise than OpenCV, up to 32
    # grey levels away.
    resized = fn.resize(
        stored, resize_x=resize_x, resize_y=resize_y, subpixel_scale=False, antialias=False
    )
    shown = cast("DataNode", resized)  # the stubs offer a sequence as well
    if transpose:  # pyright: ignore[reportGeneralTypeIssues] # becomes a branch of the graph
        shown = fn.transpose(shown, perm=[1, 0, 2])
    rows = fn.slice(
        shown,
        start=corner,
        shape=[height, width],
        axes=[0, 1],
        out_of_bounds_policy="pad",
        fill_values=[PAD_VALUE],
    )
    return rows, stored.shape()


def _source(name: str, dtype: DALIDataType, *, ndim: int) -> DataNode:
    """An input of the graph, fed by `run`. Not copied: the caller's arrays outlive the call."""
    return fn.external_source(name=name, dtype=dtype, ndim=ndim, no_copy=True)


def _inputs(orders: Sequence[_Order]) -> dict[str, object]:
    """What the graph is fed: the bytes in place, and each picture's turn, size and corner."""
    resize_x, resize_y, transpose, corner = [], [], [], []
    for order in orders:
        geometry = order.item.geometry
        turn = turn_of(order.item.header.orientation)
        x = -geometry.inner_width if turn.mirror_x else geometry.inner_width
        y = -geometry.inner_height if turn.mirror_y else geometry.inner_height
        # The resize comes before the transposition, where x is still y.
        resize_x.append(y if turn.transpose else x)
        resize_y.append(x if turn.transpose else y)
        transpose.append(turn.transpose)
        corner.append((-geometry.top, -geometry.left))
    return {
        "encoded": [order.encoded for order in orders],
        "resize_x": np.array(resize_x, np.float32),
        "resize_y": np.array(resize_y, np.float32),
        "transpose": np.array(transpose, np.bool_),
        "corner": np.array(corner, np.int32),
    }


def _vetted(item: Item) -> memoryview | bytes | PoisonError:
    """The bytes that DALI may see, or why it may not."""
    if item.header.encoding not in _ENCODINGS:
        return failure(f"{item.header.encoding} is left to the next decoder")
    data = item.frame.data
    if len(data) == 0:
        return failure("the picture is empty")
    if unpacks_too_far(item):
        return failure("the PNG holds far more than its picture")
    if item.header.encoding is Encoding.JPEG:
        return vetted_jpeg(data)
    if _has_exif(data, item.header.encoding):
        return failure("PNG and WebP with EXIF are left to the next decoder")
    return data


def _has_exif(data: memoryview, encoding: Encoding) -> bool:
    """Whether a PNG or a WebP may have EXIF that DALI would read."""
    if encoding is Encoding.PNG:
        return _PNG_EXIF.search(data) is not None
    extended = encoding is Encoding.WEBP and bytes(data[12:16]) == b"VP8X"
    return extended and bool(data[_WEBP_FLAGS_AT] & EXIF_FLAG)


def _misfit(orders: Sequence[_Order], shapes: npt.NDArray[np.int64]) -> PoisonError | None:
    """Why a picture's stored shape is not what its header claimed, if there is one."""
    for order, (height, width, _) in zip(orders, shapes.tolist(), strict=True):
        header = order.item.header
        if (width, height) != (header.coded_width, header.coded_height):
            claimed = f"{header.coded_width}×{header.coded_height}"
            return failure(f"the header says {claimed} pixels, the picture has {width}×{height}")
    return None
