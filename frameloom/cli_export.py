"""`frameloom export`: weights to a file for another backend, compared with torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frameloom.cli_options import ConfigOption, JsonOption
from frameloom.console import err, out, print_json, rest_idle_threads, settings_of
from pipeline.export_format import Format, check_name, default_out
from pipeline.exported import Shape
from schemas.errors import ConfigError, FrameloomError
from schemas.settings import Settings

if TYPE_CHECKING:
    from pipeline.exported import ExportInfo
    from pipeline.model_cache import Figure

_SHAPE = re.compile(r"^([0-9]{1,5})x([0-9]{1,5})$")


class ExportError(FrameloomError):
    """The file is written, but its boxes are not those of torch."""


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Detection weights (.pt).")],
    *,
    format_: Annotated[Format, typer.Option("--format", "-f", help="What to make.")],
    file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Default: beside the weights."),
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Half precision inside (OpenVINO: half weights).")
    ] = False,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Serve any size, not only these shapes.")
    ] = False,
    shapes: Annotated[
        list[str] | None,
        typer.Option(
            "--shape", metavar="HxW", help="Of the tensor; repeat it. Default: all buckets'."
        ),
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Default: the buckets' own, else 16.")
    ] = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Export weights for ONNX Runtime, OpenVINO or TensorRT, and compare the file with torch.

    The batch stays open (1 up to --max-batch); shapes are those of the buckets in the settings.
    The file carries labels, stride, the weights' digest and what it must answer.
    """
    target = file or default_out(model, format_)
    check_name(target, format_)
    if dynamic and format_ is Format.ENGINE:
        raise ConfigError("--dynamic: an engine serves the shapes that it is built for")
    wanted = _shapes(settings_of(config), shapes or [], max_batch)
    rest_idle_threads()
    err.print("loading the weights ...")
    from pipeline.backend_files import Loading, judge, load_exported
    from pipeline.export import ExportOrder, export_model

    order = ExportOrder(model, format_, wanted, half=half, dynamic=dynamic)
    info = export_model(order, target)
    err.print("comparing with torch ...")
    loading = Loading(device="cuda" if format_ is Format.ENGINE else "cpu", conf=0.25, iou=0.7)
    figure = judge(load_exported(target, loading), wanted)
    _show(target, info, figure, json=json)
    if figure.refused:
        raise ExportError(f"{target}: a worker will refuse this file: {figure.refused}")


def _shapes(settings: Settings, asked: list[str], max_batch: int | None) -> tuple[Shape, ...]:
    largest: dict[tuple[int, int], int] = {}
    for text in asked:
        found = _SHAPE.match(text)
        if found is None:
            raise ConfigError(f"--shape {text}: expected HEIGHTxWIDTH in pixels, e.g. 384x640")
        largest[int(found[1]), int(found[2])] = max_batch or 16
    if not asked:
        for bucket in (bucket for route in settings.routes for bucket in route.buckets):
            key = (bucket.height, bucket.width)
            largest[key] = max_batch or max(largest.get(key, 1), bucket.ceiling)
    return tuple(Shape(height, width, batch) for (height, width), batch in largest.items())


def _show(target: Path, info: ExportInfo, figure: Figure, *, json: bool) -> None:
    if json:
        print_json(
            {
                "file": str(target), "backend": figure.backend, "model": info.name,
                "version": info.digest[:12], "half": info.half, "dynamic": info.dynamic,
                "shapes": info.shapes, "iou": figure.iou, "score": figure.score,
                "refused": figure.refused,
            }
        )  # fmt: skip
        return
    out.print(f"[bold]{target}[/]  {figure.backend}, weights {info.digest[:12]}")
    shapes = ", ".join(f"{s.height}x{s.width} up to {s.max_batch}" for s in info.shapes)
    any_size = "any size; tried with " if info.dynamic else ""
    out.print(f"serves      {any_size}{shapes}", soft_wrap=True)
    if figure.iou is not None:
        out.print(
            f"parity      least IoU {figure.iou:.4f}, largest score difference {figure.score:.2g}"
        )
