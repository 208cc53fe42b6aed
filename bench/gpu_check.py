"""One command for a machine with a GPU: is it right, does it overlap, does it allocate, how fast.

    python -m bench.gpu_check [--json FILE] [--seconds S] [--weights FILE ...] [--no-speed]
    python -m bench.gpu_check --device cpu --quick        a rehearsal, without a GPU

Prints one table. Exit code: 0 all checks passed, 1 one failed, 2 there is no GPU (or a wrong
argument). Needs torch, torchvision, OpenCV, Ultralytics, msgspec and this repository: no Kafka, no
network, with or without DALI. docs/performance.md says how to carry it to a bare machine.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from bench.gpu_check_rig import Plan
from bench.gpu_check_rows import Row, as_json, holds, table
from bench.gpu_check_speed import speed
from bench.gpu_check_truth import (
    check_decoder,
    check_device,
    check_graphs,
    check_parity,
    check_suppression,
    decoder_kinds,
)
from bench.random_weights import write_random_yolov8
from pipeline.bucket import Bucket
from pipeline.model import load_model

SPEED = "speed"
EXIT_OK, EXIT_FAILED, EXIT_NO_GPU = 0, 1, 2
DEMO_WEIGHTS = Path(__file__).parent / "assets" / "frameloom-demo.pt"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit code."""
    options = _parser().parse_args(arguments)
    device: torch.device = options.device
    seen = torch.cuda.device_count()
    if device.type == "cuda" and device.index >= seen:
        print(
            f"no GPU: torch sees {seen} CUDA devices here and {device} is none of them, so nothing "
            "was checked. For a rehearsal on the processor: --device cpu --quick",
            file=sys.stderr,
        )
        return EXIT_NO_GPU
    if device.type == "cuda":
        torch.cuda.set_device(device)
    threads = torch.get_num_threads()
    if device.type == "cpu":
        # Two threads on a machine that is busy wait for each other at every layer.
        torch.set_num_threads(1)
    try:
        return _check(_plan(options, device), options)
    finally:
        torch.set_num_threads(threads)


def _check(plan: Plan, options: argparse.Namespace) -> int:
    rows: list[Row] = list(_environment(plan))
    # Truth is looked for in full precision, speed as the worker runs.
    short_floats = torch.backends.cudnn.allow_tf32
    with tempfile.TemporaryDirectory() as folder:
        models = options.weights or _models(Path(folder), quick=options.quick)
        for section, run in _sections(plan, models, options):
            began = time.monotonic()
            torch.backends.cudnn.allow_tf32 = short_floats and section == SPEED
            rows += _collected(section, run())
            print(f"{section}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    torch.backends.cudnn.allow_tf32 = short_floats
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(rows), indent=1, ensure_ascii=False) + "\n")
    failed = [row for row in rows if row.passed is False]
    print(f"\n{len(failed)} failed, {sum(row.passed is True for row in rows)} passed")
    return EXIT_FAILED if failed else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu_check", description="The check of a GPU."
    )
    parser.add_argument(
        "--device", type=device_of, default="cuda", help="cuda, cuda:N, or cpu for a rehearsal"
    )
    parser.add_argument("--weights", type=Path, nargs="*", help="weights of the speed runs")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each speed run")
    parser.add_argument("--batch", type=int, default=64, help="largest batch of the speed runs")
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--decode-threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument("--no-speed", action="store_true", help="correctness only")
    parser.add_argument("--no-truth", action="store_true", help="speed only")
    parser.add_argument("--quick", action="store_true", help="as little as shows that it runs")
    return parser


def device_of(name: str) -> torch.device:
    """`cpu`, or a GPU by its number: `cuda` is the first.

    Raises:
        ArgumentTypeError: another name.
    """
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", name):
        raise argparse.ArgumentTypeError(f"{name!r}: one of cuda, cuda:N, cpu")
    device = torch.device(name)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _plan(options: argparse.Namespace, device: torch.device) -> Plan:
    quick = options.quick
    return Plan(
        device=device,
        bucket=Bucket("speed", 50_000_000, *((64, 96, 2) if quick else (384, 640, options.batch))),
        source=(160, 90) if quick else (1920, 1080),
        pictures=2 if quick else 16,
        seconds=0.2 if quick else options.seconds,
        slots=options.slots,
        decode_threads=options.decode_threads or len(os.sched_getaffinity(0)),
    )


Section = tuple[str, Callable[[], Iterable[Row]]]


def _sections(plan: Plan, models: Sequence[Path], options: argparse.Namespace) -> Iterator[Section]:
    kinds = decoder_kinds(plan)
    demo = load_model(str(DEMO_WEIGHTS), device=str(plan.device), conf=0.25, iou=0.7)
    demo.warm_up(())
    if not options.no_truth:
        for kind in kinds[:1] if options.quick else kinds:
            yield f"decode {kind}", lambda kind=kind: check_decoder(plan, kind)
        yield "suppression", lambda: check_suppression(plan, demo)
        if not options.quick:
            yield "graphs", lambda: check_graphs(plan, demo)
            yield "device", lambda: check_device(plan, demo)
            for kind in kinds:
                for half in (False, True) if plan.on_gpu else (False,):
                    yield (
                        f"parity {kind}",
                        lambda kind=kind, half=half: check_parity(
                            plan, DEMO_WEIGHTS, kind, half=half
                        ),
                    )
    if not options.no_speed:
        yield SPEED, lambda: speed(plan, kinds[:1] if options.quick else kinds, models)


def _collected(section: str, rows: Iterable[Row]) -> list[Row]:
    """The section's rows; a section that breaks off fails, and the others go on."""
    found: list[Row] = []
    try:
        found.extend(rows)
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs into the table
        found.append(holds(section, "ran to its end", passed=False, why=_one_line(error)))
    return found


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ").replace("|", "/")[:300]


def _models(folder: Path, *, quick: bool) -> list[Path]:
    """Nobody's weights will do for speed: YOLOv8n's and YOLOv8m's shapes, filled at random."""
    if quick:
        return [DEMO_WEIGHTS]
    return [
        write_random_yolov8(folder / "yolov8n-random.pt"),
        write_random_yolov8(folder / "yolov8m-random.pt", width=0.75, depth=0.67),
    ]


def _environment(plan: Plan) -> Iterator[Row]:
    name = torch.cuda.get_device_name(plan.device) if plan.on_gpu else "no GPU: a rehearsal"
    yield Row("machine", "device", name)
    yield Row("machine", "processors", float(len(os.sched_getaffinity(0))))
    yield Row("machine", "python", platform.python_version())
    for package in ("torch", "torchvision", "ultralytics", "opencv-python"):
        yield Row("machine", package, _version(package))
    yield Row("machine", "CUDA of torch", str(torch.version.cuda))
    dali = [_version(f"nvidia-dali-cuda{number}") for number in (120, 130)]
    yield Row("machine", "DALI", next((v for v in dali if v != "not installed"), "not installed"))
    batch = plan.bucket
    yield Row(
        "machine", "speed runs", f"{plan.source[0]}×{plan.source[1]} JPEG → {batch.height}×"
        f"{batch.width}, batches of {batch.max_batch}, {plan.slots} slots",
    )  # fmt: skip


def _version(package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return "not installed"


if __name__ == "__main__":
    raise SystemExit(main())
