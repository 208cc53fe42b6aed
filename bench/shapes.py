"""What rectangular buckets bring against square padding: `python -m bench.shapes`.

The same frames of the mixed streams, from memory, through the same engine, model and backend; only
the buckets differ, and take turns in one run:

- *square*: one bucket of 640×640 for all pictures, as most pipelines pad them;
- *rectangles*: 384×640 and 640×384: the same pictures at the same scale, less padding;
- *by size*: the default buckets, whose small pictures take 256×448 (and lose scale by it).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec

from bench.cpu_rig import EngineRun, Rig, items_of, rig_settings
from bench.mixed_streams import mixed_loads
from bench.report import (
    Bars,
    Cell,
    Document,
    check_files,
    machine,
    median,
    plan_of,
    show,
    spread,
    write,
)
from pipeline.item import Item
from schemas.settings import DEFAULT_BUCKETS, Backend, BucketSettings, DeviceSettings, RouteSettings

_ANY = 50_000_000
SQUARE, RECTANGLES, BY_SIZE = "square", "rectangles", "by size"


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        frames: of the mixed streams, measured in each round.
        repeats: rounds of each side, in turn.
        backend: of the model; `auto` is settled for the rectangles and then kept.
        max_batch: of every bucket.
    """

    frames: int = 129
    repeats: int = 3
    backend: str = "auto"
    max_batch: int = 4


def buckets_of(max_batch: int) -> dict[str, list[BucketSettings]]:
    """Side → its buckets."""

    def bucket(name: str, height: int, width: int) -> BucketSettings:
        return BucketSettings(
            name=name, max_source_pixels=_ANY, height=height, width=width, max_batch=max_batch
        )

    return {
        RECTANGLES: [bucket("wide", 384, 640), bucket("tall", 640, 384)],
        SQUARE: [bucket("square", 640, 640)],
        BY_SIZE: [msgspec.structs.replace(b, max_batch=max_batch) for b in DEFAULT_BUCKETS],
    }


def measure(options: Options) -> Document:
    """All sides in turn."""
    about = machine()
    loads = mixed_loads(options.frames)
    device = DeviceSettings(name="cpu", decoder="opencv")
    backend = Backend(options.backend)
    rigs: dict[str, Rig] = {}
    for side, buckets in buckets_of(options.max_batch).items():
        rigs[side] = Rig(rig_settings(RouteSettings(backend=backend, buckets=buckets), device))
        backend = Backend(rigs[side].backend)
    items = {side: items_of(loads, rig.buckets) for side, rig in rigs.items()}
    found: dict[str, list[EngineRun]] = {side: [] for side in rigs}
    for _ in range(options.repeats):
        for side, rig in rigs.items():
            found[side].append(rig.run(items[side]))
    pixels = {side: _pixels(of_side) for side, of_side in items.items()}
    plan = plan_of({**asdict(options), "backend_used": backend.value})
    return document(plan, about, found, pixels)


def document(
    plan: dict[str, Cell],
    about: dict[str, Cell],
    found: Mapping[str, Sequence[EngineRun]],
    pixels: Mapping[str, float],
) -> Document:
    """The figures. Ratios are medians over the repeats, each of one turn of all sides.

    Args:
        plan: what was asked for.
        about: the machine.
        found: side → its rounds; `SQUARE` is the one that others are held against.
        pixels: side → the model's input, kilopixels per frame.
    """
    rows: list[dict[str, Cell]] = []
    for side, runs in found.items():
        pairs = [(run.spent, square.spent) for run, square in zip(runs, found[SQUARE], strict=True)]
        rates = [ours.rate / theirs.rate for ours, theirs in pairs]
        rows.append(
            {
                "buckets": side,
                "kpixels": pixels[side],
                "frames_per_s": median([ours.rate for ours, _ in pairs]),
                "cpu_ms_per_frame": median([ours.cpu_us / 1e3 for ours, _ in pairs]),
                "×square": median(rates),
                "×square, from-to": spread(rates),
                "×square, by CPU": median([t.cpu_us / o.cpu_us for o, t in pairs]),
                "batch": median([o.frames / max(1, o.batches) for o, _ in pairs]),
            }
        )
    bars = Bars(
        title="The same frames in square and in rectangular buckets",
        axis="times square, by processor time",
        groups=list(found),
        series={"×square": [float(str(row["×square, by CPU"])) for row in rows]},
    )
    return Document(bench="shapes", machine=about, plan=plan, rows=rows, goals=[], bars=bars)


def _pixels(items: Sequence[Item]) -> float:
    total = sum(item.bucket.height * item.bucket.width for item in items)
    return round(total / len(items) / 1e3, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """0: no goal is set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--frames", type=int, default=129)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backend", default="auto", choices=[each.value for each in Backend])
    parser.add_argument("--max-batch", type=int, default=4)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(arguments)
    check_files(asked.json, asked.plot)
    found = measure(Options(asked.frames, asked.repeats, asked.backend, asked.max_batch))
    show(found)
    write(found, asked.json, asked.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
