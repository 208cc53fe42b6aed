"""The plot of `frameloom bench surface`: latency and pictures per second against the batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bench.surface import BucketSurface


def plot(surfaces: Sequence[BucketSurface], file: Path) -> None:
    """Two panels; a line for each shape of each route, a ring where its plateau begins.

    Args:
        surfaces: at least one.
        file: the PNG to write.
    """
    figure: Any = Figure(figsize=(11.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    latency, speed = figure.subplots(1, 2)
    for surface in _distinct(surfaces):
        batches = [row.batch for row in surface.rows]
        name = f"{surface.route} {surface.shape} ({surface.backend})"
        (line,) = latency.plot(
            batches, [row.milliseconds for row in surface.rows], marker=".", label=name
        )
        speed.plot(batches, [row.img_per_s for row in surface.rows], marker=".", label=name)
        if surface.plateau in batches:
            at = surface.rows[batches.index(surface.plateau)]
            ring = {"marker": "o", "markersize": 11, "fillstyle": "none", "color": line.get_color()}
            latency.plot(at.batch, at.milliseconds, **ring)
            speed.plot(at.batch, at.img_per_s, **ring)
        elif surface.plateau is not None:
            speed.axvline(surface.plateau, color=line.get_color(), linestyle=":")
    latency.set_ylabel("milliseconds per batch")
    speed.set_ylabel("pictures per second")
    ticks = sorted({row.batch for surface in surfaces for row in surface.rows})
    for axes in (latency, speed):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.set_xlabel("batch")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    speed.set_title("plateau: ring or dotted line", fontsize="small")
    latency.legend(fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def _distinct(surfaces: Sequence[BucketSurface]) -> list[BucketSurface]:
    """Buckets of one shape have one surface."""
    seen = {(surface.route, surface.shape): surface for surface in reversed(surfaces)}
    return [surface for surface in surfaces if seen[surface.route, surface.shape] is surface]
