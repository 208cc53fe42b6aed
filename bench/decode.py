"""DALI against OpenCV, format by format and size by size: `python -m bench.decode`.

Both turn the same picture into a letterboxed row of the bucket that it takes by default, in batches
of four, round by round in turn so that a busy machine burdens both; the best round of each counts.
Processor time says what a picture costs, whatever else the machine does. A format that DALI leaves
to OpenCV (the worker's own way) has no figure for DALI.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import msgspec
import numpy as np
import torch

from bench.decoders import BATCH, Timing
from bench.frame_item import frame_item
from bench.report import Bars, Cell, Document, check_files, machine, plan_of, show, write
from bench.scenes import HELD_OUT, Scene
from pipeline.bucket import Bucket, BucketTable
from pipeline.decode_opencv import OpenCvDecoder
from pipeline.ports import Decoder
from schemas.frame import Encoding
from schemas.settings import DEFAULT_BUCKETS

SIZES = ((854, 480), (1920, 1080), (3840, 2160))
FORMATS: dict[Encoding, tuple[str, list[int]]] = {
    Encoding.JPEG: (".jpg", [cv2.IMWRITE_JPEG_QUALITY, 85]),
    Encoding.PNG: (".png", []),
    Encoding.WEBP: (".webp", [cv2.IMWRITE_WEBP_QUALITY, 85]),
    Encoding.BMP: (".bmp", []),
    Encoding.TIFF: (".tiff", []),
}

DALI_FORMATS = frozenset({Encoding.JPEG, Encoding.PNG, Encoding.WEBP})
"""What the worker gives to DALI; the rest is OpenCV's."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        rounds: of each decoder at each case.
        threads: of each decoder.
        formats: by name; all without any.
        widths: of SIZES; all without any.
    """

    rounds: int = 4
    threads: int = 1
    formats: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()


def measure(options: Options) -> Document:
    """Every format at every size."""
    about = machine()
    table = BucketTable([Bucket(**msgspec.structs.asdict(each)) for each in DEFAULT_BUCKETS])
    rows: list[dict[str, Cell]] = []
    for width, height in SIZES:
        if options.widths and width not in options.widths:
            continue
        picture = Scene(HELD_OUT + 3, width, height).frame(1.0)[0]
        chosen = [each for each in FORMATS if each.value in options.formats or not options.formats]
        rows += [_case(picture, encoding, table, options) for encoding in chosen]
    bars = Bars(
        title="Decoding and letterboxing one picture, one thread",
        axis="CPU ms per picture",
        groups=[f"{row['format']}\n{row['source']}" for row in rows],
        series={name: [_number(row[name]) for row in rows] for name in ("opencv", "dali")},
    )
    plan = plan_of({"rounds": options.rounds, "threads": options.threads, "batch": BATCH})
    return Document(bench="decode", machine=about, plan=plan, rows=rows, goals=[], bars=bars)


def _case(
    picture: np.ndarray, encoding: Encoding, table: BucketTable, options: Options
) -> dict[str, Cell]:
    suffix, flags = FORMATS[encoding]
    data = cv2.imencode(suffix, picture, flags)[1].tobytes()
    item = frame_item(data, encoding, table)
    shape = (BATCH, item.bucket.height, item.bucket.width, 3)
    timings = [
        Timing(decoder, torch.empty(shape, dtype=torch.uint8))
        for decoder in (OpenCvDecoder(threads=options.threads), _dali(encoding, options.threads))
        if decoder is not None
    ]
    for _ in range(options.rounds + 1):
        for timing in timings:
            timing.run([item] * BATCH)
    for timing in timings:
        timing.decoder.close()
    height, width, _ = picture.shape
    opencv, dali = timings[0], timings[1] if len(timings) > 1 else None
    return {
        "format": encoding.value,
        "source": f"{width}×{height}",
        "KiB": round(len(data) / 1024),
        "opencv": _rounded(opencv.cpu_ms),
        "dali": None if dali is None else _rounded(dali.cpu_ms),
        "opencv_wall_ms": _rounded(opencv.wall_ms),
        "dali_wall_ms": None if dali is None else _rounded(dali.wall_ms),
        "dali/opencv": None if dali is None else _rounded(dali.cpu_ms / opencv.cpu_ms),
        "rows_differ_by": None if dali is None else _difference(opencv.rows, dali.rows),
    }


def _dali(encoding: Encoding, threads: int) -> Decoder | None:
    """None where the worker has no DALI, or leaves the format to OpenCV."""
    try:
        from pipeline.decode_dali import DaliDecoder  # noqa: PLC0415
    except ImportError:
        return None
    return DaliDecoder(threads=threads) if encoding in DALI_FORMATS else None


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Mean difference of two decoders' rows, in levels of 255."""
    return float(f"{(a.int() - b.int()).abs().float().mean().item():.3g}")


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _number(cell: Cell) -> float | None:
    return float(cell) if isinstance(cell, int | float) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    names, widths = [each.value for each in FORMATS], [width for width, _ in SIZES]
    parser.add_argument("--formats", nargs="+", default=[], choices=names)
    parser.add_argument("--widths", nargs="+", type=int, default=[], choices=widths)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    check_files(asked.json, asked.plot)
    options = Options(asked.rounds, asked.threads, tuple(asked.formats), tuple(asked.widths))
    found = measure(options)
    show(found)
    write(found, asked.json, asked.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
