"""The plot of `bench.backends`: pictures per second by shape and batch size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def plot(models: Mapping[str, Any], file: Path) -> None:
    """One panel per model, a group of bars per shape and batch size.

    Args:
        models: title → its part of the JSON document.
        file: the PNG to write.
    """
    figure: Any = Figure(figsize=(6.5 * len(models), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, (title, content) in zip(panels, models.items(), strict=True):
        rows = content["speed"]
        names = list(dict.fromkeys(row["backend"] for row in rows))
        cases = list(dict.fromkeys((row["shape"], row["batch"]) for row in rows))
        wide = 0.8 / len(names)
        for i, name in enumerate(names):
            heights = [row["best"] for row in rows if row["backend"] == name]
            places = [k + (i - (len(names) - 1) / 2) * wide for k in range(len(cases))]
            axes.bar(places, heights, wide, label=name)
        axes.set_xticks(
            range(len(cases)), [f"{shape}\n×{n}" for shape, n in cases], fontsize="small"
        )
        axes.set_ylabel("pictures per second")
        axes.set_title(f"{title} (auto: {content['auto']})")
        axes.legend()
    figure.savefig(file, dpi=110)
