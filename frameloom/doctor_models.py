"""Every route's model: there, readable, run by what is installed, and of a shape that fits the
buckets. Loads native libraries, so it runs in a process of its own (`doctor_child`)."""

from __future__ import annotations

import importlib.util
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from frameloom.doctor_finding import Finding, ok, problem, warning
from schemas.errors import ConfigError
from schemas.settings import Backend, RouteSettings, Settings

PACKAGES = {
    Backend.ONNX: "onnxruntime", Backend.OPENVINO: "openvino", Backend.TENSORRT: "tensorrt"
}  # fmt: skip
"""Backend → the package that runs it."""


def models(settings: Settings) -> Iterator[Finding]:
    """One finding for each route."""
    for route in settings.routes:
        yield _of_route(f"model.{route.name}", settings, route)
    yield _cache(settings)


def _of_route(check: str, settings: Settings, route: RouteSettings) -> Finding:
    path, package = Path(route.model), PACKAGES.get(route.backend)
    if package is not None and importlib.util.find_spec(package) is None:
        return problem(
            check,
            f"backend {route.backend.value} needs the package {package}, which is not installed",
            f"pip install {package}, or set the route's backend: auto",
        )
    if not path.exists():
        return _absent(check, path)
    if path.suffix == ".pt" and not zipfile.is_zipfile(path):
        # Before torch: it takes seconds to say so.
        return problem(
            check,
            f"{path} is no checkpoint of torch ({path.stat().st_size} bytes)",
            "fetch or export it anew; Git LFS pointers and web pages look like this",
        )
    try:
        return _readable(check, settings, route)
    except ConfigError as error:
        return problem(
            check, str(error), "use YOLOv8 detection weights (.pt), or a file of frameloom export"
        )


def _absent(check: str, path: Path) -> Finding:
    if re.fullmatch(r"yolov8[nsmlx]\.pt", path.name):
        return warning(
            check,
            f"{path} is not here: Ultralytics would fetch it at the start",
            f"put {path.name} there beforehand (a worker without internet does not start)",
        )
    return problem(check, f"{path}: no such file", "set the route's model to a file that is there")


def _readable(check: str, settings: Settings, route: RouteSettings) -> Finding:
    """Raises ConfigError."""
    from pipeline.backend_model import check_strides
    from pipeline.checkpoint import read_checkpoint
    from pipeline.memory_plan import MIB, frame_bytes
    from workers.assembly import bucket_table

    buckets = bucket_table(route).buckets
    if Path(route.model).suffix == ".pt":
        found = read_checkpoint(route.model)
        name, digest, labels = found.name, found.digest, found.labels
        strides: Any = found.network.stride
        stride = int(strides.max())
        check_strides(buckets, stride)
    else:
        name, digest, labels, stride = _exported(settings, route)
    strange = [number for number in route.classes or () if number not in labels]
    if strange:
        return problem(
            check,
            f"classes {strange} are none of the model's {len(labels)}",
            f"name classes from 0 to {len(labels) - 1}",
        )
    shown = ", ".join(list(labels.values())[:4])
    each = max(b.max_batch * frame_bytes(b.height, b.width, len(labels)) for b in buckets)
    return ok(
        check,
        f"{name} {digest[:12]}, {len(labels)} classes ({shown} …), stride {stride}; batches "
        f"in slots take {max(1, settings.device.slots * each // MIB)} MiB",
    )


def _exported(settings: Settings, route: RouteSettings) -> tuple[str, str, Mapping[int, str], int]:
    """Name, digest, labels and stride of an exported file. Raises ConfigError."""
    from pipeline.backend_files import Loading, load_exported
    from workers.assembly import bucket_table

    loading = Loading(device=settings.device.name, conf=route.conf, iou=route.iou, threads=1)
    model = load_exported(Path(route.model), loading)
    model.check_shapes(bucket_table(route).buckets)
    about = model.about
    return about.name, about.digest, about.labels, about.stride


def _cache(settings: Settings) -> Finding:
    """Where exported files and choices of backends are kept."""
    from pipeline.model_cache import default_folder

    chosen = settings.device.model_cache_dir
    folder = default_folder() if chosen is None else Path(chosen)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok("model_cache", f"{folder} can be written")
    return warning(
        "model_cache",
        f"{there} cannot be written: exports and measurements are made anew at every start",
        "set device.model_cache_dir to a folder of this user",
    )
