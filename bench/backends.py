"""Model backends side by side: `python -m bench.backends`.

Speed per shape and batch size, all backends taking turns in one process; and on held-out scenes
the mean average precision and the boxes of each against torch in float32. Prints tables, writes
JSON and a plot.
"""

from __future__ import annotations

import os

# Before torch: idle threads sleep, as in the worker. Spinning ones would slow the others down.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

# Before Ultralytics itself: it keeps Ultralytics off the network.
from pipeline.backends import ModelOrder, open_model  # isort: skip

from bench.average_precision import Precision as AveragePrecision
from bench.backends_plot import plot
from bench.parity import DEMO_WEIGHTS, compare
from bench.random_weights import write_random_yolov8
from bench.report import check_files
from bench.scenes import HELD_OUT, Scene, Truth
from pipeline.backend_files import Loading
from pipeline.bucket import Bucket
from pipeline.exported import library_versions
from pipeline.letterbox import PAD_VALUE, Letterbox, letterbox
from pipeline.parity import limits_of
from pipeline.ports import Model
from pipeline.postprocess import YoloPostprocessor
from schemas.errors import ConfigError
from schemas.settings import Backend, Precision

BUCKETS = (
    Bucket("480p", 420_000, 256, 448, 16),
    Bucket("1080p", 2_100_000, 384, 640, 16),
    Bucket("square", 50_000_000, 640, 640, 8),
)
BATCHES = (1, 4, 8)
CONF, IOU, MAX_DET = 0.25, 0.7, 300
_SOURCES = {"480p": (854, 480), "1080p": (1920, 1080), "square": (1080, 1080)}


@dataclass(frozen=True, slots=True)
class Speed:
    """One backend at one shape and batch size.

    Attributes:
        median, best: pictures per second, of the rounds.
        cpu_ms: processor time per picture, all threads together, median of the rounds: hardly
            touched by what else the machine does. Of no meaning on a GPU.
    """

    backend: str
    shape: str
    batch: int
    median: float
    best: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One backend on the scene set. `map50` and `map50_95` are None for weights that do not know
    its classes; the rest is against torch in float32."""

    backend: str
    pictures: int
    boxes: int
    miscounts: int
    iou: float
    score: float
    map50: float | None
    map50_95: float | None
    within_limits: bool


@dataclass(frozen=True, slots=True)
class Shot:
    """A scene's picture in a bucket: uint8 (height, width, 3), RGB."""

    frame: torch.Tensor
    geometry: Letterbox
    truths: Sequence[Truth]


def load(weights: Path, cache: Path, threads: int, device: str) -> dict[str, Model]:
    """Every backend that this machine has, warmed up; torch in float32 is the first."""
    asked = [(Backend.TORCH, Precision.FP32)]
    if torch.device(device).type == "cuda":
        asked += [(Backend.TORCH, Precision.FP16), (Backend.TENSORRT, Precision.FP32),
                  (Backend.TENSORRT, Precision.FP16)]  # fmt: skip
    else:
        asked += [(Backend.ONNX, Precision.FP32), (Backend.OPENVINO, Precision.FP32),
                  (Backend.OPENVINO, Precision.FP16)]  # fmt: skip
    loading = Loading(device=device, conf=CONF, iou=IOU, threads=threads)
    found: dict[str, Model] = {}
    for backend, precision in asked:
        try:
            order = ModelOrder(str(weights), backend, precision, BUCKETS, loading, cache)
            model = open_model(order).model
        except ConfigError as error:
            print(f"without {backend.value} {precision.value}: {error}")
            continue
        model.warm_up(BUCKETS)
        found[model.info.backend] = model
    return found


def chosen(weights: Path, cache: Path, threads: int, device: str) -> tuple[str, float, float]:
    """What `backend: auto` takes, and how long the first and the second start took, seconds, with
    nothing exported before."""
    loading = Loading(device=device, conf=CONF, iou=IOU, threads=threads)
    order = ModelOrder(str(weights), Backend.AUTO, Precision.AUTO, BUCKETS, loading, cache)
    took: list[float] = []
    backend = ""
    for _ in range(2):
        began_at = time.perf_counter()
        backend = open_model(order).choice.backend
        took.append(time.perf_counter() - began_at)
    return backend, took[0], took[1]


def speeds(models: Mapping[str, Model], rounds: int) -> list[Speed]:
    """All backends in turn, `rounds` times for each shape and batch size."""
    found: list[Speed] = []
    for bucket in BUCKETS:
        for n in BATCHES:
            shape = (n, bucket.height, bucket.width, 3)
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
            for _ in range(rounds):
                for name, model in models.items():
                    taken[name].append(_seconds(model, shape))
            for name, each in taken.items():
                wall, cpu = zip(*each, strict=True)
                found.append(
                    Speed(
                        backend=name,
                        shape=f"{bucket.height}x{bucket.width}",
                        batch=n,
                        median=round(n / statistics.median(wall), 1),
                        best=round(n / min(wall), 1),
                        cpu_ms=round(statistics.median(cpu) / n * 1000, 1),
                    )
                )
    return found


def _seconds(model: Model, shape: tuple[int, ...]) -> tuple[float, float]:
    """On the clock, and of the processor."""
    frames = torch.full(shape, PAD_VALUE, dtype=torch.uint8, device=model.device)
    began_at, cpu_at = time.perf_counter(), time.process_time()
    raw = model.infer(frames)
    if raw.is_cuda:
        torch.cuda.synchronize(raw.device)
    return time.perf_counter() - began_at, time.process_time() - cpu_at


def shots(bucket: Bucket, scenes: int) -> list[Shot]:
    """Held-out scenes, after JPEG, letterboxed as the worker does."""
    from bench.eval_demo_model import photographed  # noqa: PLC0415
    from pipeline.parity_pictures import lay  # noqa: PLC0415

    found: list[Shot] = []
    width, height = _SOURCES[bucket.name]
    for i in range(scenes):
        picture, truths = Scene(HELD_OUT + 100 + i, width, height).frame(3.0 + i)
        geometry = letterbox(width, height, bucket.width, bucket.height)
        frame = lay(photographed(picture)[..., ::-1], geometry)
        found.append(Shot(torch.from_numpy(frame), geometry, truths))
    return found


def accuracies(
    models: Mapping[str, Model], sets: Mapping[Bucket, Sequence[Shot]], *, knows_scenes: bool
) -> list[Accuracy]:
    """Every backend on the same pictures."""
    reference = next(iter(models.values()))
    labels = reference.labels
    post = YoloPostprocessor(labels, conf=CONF, iou=IOU, max_det=MAX_DET)
    low = YoloPostprocessor(labels, conf=0.001, iou=IOU, max_det=MAX_DET)
    found: list[Accuracy] = []
    expected = {
        (bucket.name, i): post.detections(reference.infer(shot.frame[None]), [shot.geometry])[0]
        for bucket, each in sets.items()
        for i, shot in enumerate(each)
    }
    for name, model in models.items():
        limits, precision = limits_of(name), AveragePrecision()
        differences = []
        for bucket, each in sets.items():
            for i, shot in enumerate(each):
                raw = model.infer(shot.frame[None])
                answer = post.detections(raw, [shot.geometry])[0]
                differences.append(compare(expected[bucket.name, i], answer))
                if knows_scenes:
                    precision.add(shot.truths, low.detections(raw, [shot.geometry])[0])
        map50, map50_95 = precision.figures() if knows_scenes else (None, None)
        least = min(d.iou for d in differences)
        score = max(d.score for d in differences)
        miscounts = sum(d.expected != d.found for d in differences)
        found.append(
            Accuracy(
                name, len(differences), sum(d.expected for d in differences), miscounts, least,
                score, map50, map50_95,
                least >= limits.iou and score <= limits.score and not miscounts,
            )
        )  # fmt: skip
    return found


def show(title: str, fast: Sequence[Speed], exact: Sequence[Accuracy], choice: str) -> None:
    """The tables, as Markdown."""
    names = list(dict.fromkeys(speed.backend for speed in fast))
    print(f"\n**{title}**; `auto` takes {choice}\n")
    print("| best img/s (CPU ms each) | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names))
    for shape, n in dict.fromkeys((speed.shape, speed.batch) for speed in fast):
        row = {s.backend: s for s in fast if (s.shape, s.batch) == (shape, n)}
        cells = " | ".join(f"{row[k].best:.1f} ({row[k].cpu_ms:.1f})" for k in names)
        print(f"| {shape}, batch {n} | {cells} |")
    print(
        "\n| backend | pictures | boxes | miscounts | least IoU | score diff | mAP50 | mAP50-95 |"
        "\n|---|---:|---:|---:|---:|---:|---:|---:|"
    )
    for a in exact:
        aps = [f"{v:.4f}" if v is not None else "–" for v in (a.map50, a.map50_95)]
        print(
            f"| {a.backend} | {a.pictures} | {a.boxes} | {a.miscounts} | {a.iou:.5f} "
            f"| {a.score:.1e} | {' | '.join(aps)} |"
        )


def processor() -> str:
    """The instruction sets that decide most on a CPU."""
    flags = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    known = ("avx2", "avx512f", "avx512_vnni", "amx_bf16", "asimd")
    return ", ".join(name for name in known if f" {name}" in flags)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 when a backend breaks its limits."""
    parser = argparse.ArgumentParser(description="Model backends side by side.")
    parser.add_argument("--model", type=Path, default=DEMO_WEIGHTS)
    parser.add_argument("--no-random", action="store_true", help="leave random YOLOv8n out")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=0, help="within one operation; 0: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--scenes", type=int, default=16, help="of each shape")
    parser.add_argument("--out", type=Path, default=Path("out/backends"), help="JSON and PNG")
    asked = parser.parse_args(arguments)
    json_file, plot_file = asked.out / "backends.json", asked.out / "backends.png"
    check_files(json_file, plot_file, option="--out")
    good, results = True, dict[str, Any]()
    sets = {bucket: shots(bucket, asked.scenes) for bucket in BUCKETS}
    with tempfile.TemporaryDirectory() as folder:
        runs = [(asked.model.stem, asked.model, True)]
        if not asked.no_random:
            random = write_random_yolov8(Path(folder) / "random-yolov8n.pt")
            runs.append(("YOLOv8n, random weights", random, False))
        for title, weights, knows in runs:
            choice, first_s, second_s = chosen(
                weights, Path(folder) / f"auto-{weights.stem}", asked.threads, asked.device
            )
            models = load(weights, Path(folder) / "cache", asked.threads, asked.device)
            fast = speeds(models, asked.rounds)
            exact = accuracies(models, sets, knows_scenes=knows)
            good &= all(a.within_limits for a in exact)
            show(title, fast, exact, f"{choice} ({first_s:.1f} s at first, then {second_s:.1f} s)")
            results[title] = {
                "auto": choice, "first_start_s": first_s, "second_start_s": second_s,
                "speed": [asdict(s) for s in fast], "accuracy": [asdict(a) for a in exact],
            }  # fmt: skip
            models.clear()
    machine = {"cores": len(os.sched_getaffinity(0)), "processor": processor(),
               "versions": library_versions()}  # fmt: skip
    document = {"machine": machine, "models": results}
    json_file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    plot(results, plot_file)
    print(f"\n{json_file}, {plot_file}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
