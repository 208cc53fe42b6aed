"""What a bench found: one shape for all of them, printed, as JSON, and as a plot."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

Cell = str | int | float | bool | None


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure should be, and what it is.

    Attributes:
        name: what was compared.
        value: measured.
        goal: to be reached.
        at_most: whether the goal is a ceiling; else it is a floor.
    """

    name: str
    value: float
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """What the plot shows: for each group one bar of every series.

    Attributes:
        title, axis: of the plot, and what its vertical axis counts.
        groups: along the horizontal axis.
        series: name → a height per group; None where there is none.
    """

    title: str
    axis: str
    groups: list[str]
    series: dict[str, list[float | None]]


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """All that one run of a bench found.

    Attributes:
        bench: its name.
        machine: where it ran, and how busy that was.
        plan: what was asked for.
        rows: the figures, each with the same keys.
        goals: judged.
        bars: for the plot.
    """

    bench: str
    machine: dict[str, Cell]
    plan: dict[str, Cell]
    rows: list[dict[str, Cell]]
    goals: list[Goal]
    bars: Bars


def machine() -> dict[str, Cell]:
    """Processor, cores, Python, the day, and the load before the run: figures of a machine that
    others use, too, can only be compared within one run."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "python": platform.python_version(),
        "system": platform.system(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load_before": round(os.getloadavg()[0], 1),
    }


def spread(values: Sequence[float]) -> str:
    """The least and the most of several repeats, for a table."""
    return f"{min(values):.3g} to {max(values):.3g}"


def median(values: Sequence[float]) -> float:
    """Of several repeats; rounded, because nothing here is known to more than four places."""
    return float(f"{statistics.median(values):.4g}")


def show(document: Document) -> None:
    """The table and the goals on standard output."""
    rows = document.rows
    print(f"{document.bench} on {document.machine['processor']} × {document.machine['cores']}")
    if rows:
        names = list(rows[0])
        cells = [names, *([_text(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        for line in cells:
            print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    for goal in document.goals:
        relation = "≤" if goal.at_most else "≥"
        verdict = "met" if goal.met else "MISSED"
        print(f"{verdict:>6}  {goal.name}: {goal.value:.3g} (goal {relation} {goal.goal:g})")


def write(document: Document, json: Path | None, plot: Path | None) -> None:
    """The files that were asked for; folders are made."""
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(document), indent=1)
        json.write_bytes(text + b"\n")
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        draw(document.bars, plot)


def draw(bars: Bars, file: Path) -> None:
    """Groups of bars as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure: Any = Figure(
        figsize=(max(5.0, 1.3 * len(bars.groups) + 2.0), 3.6), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    wide = 0.8 / max(1, len(bars.series))
    for i, (name, heights) in enumerate(bars.series.items()):
        offset = (i - (len(bars.series) - 1) / 2) * wide
        drawn = [(k + offset, height) for k, height in enumerate(heights) if height is not None]
        marks = axes.bar([x for x, _ in drawn], [y for _, y in drawn], wide, label=name)
        axes.bar_label(marks, fmt=_height, fontsize="x-small")
    axes.set_xticks(range(len(bars.groups)), bars.groups, fontsize="small")
    axes.set_ylabel(bars.axis)
    axes.set_title(bars.title, fontsize="medium")
    if len(bars.series) > 1:
        axes.legend(fontsize="small")
    figure.savefig(file, dpi=100)


def _height(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def plan_of(options: Mapping[str, Cell]) -> dict[str, Cell]:
    """Options without what says only where a file or a broker is."""
    return {key: value for key, value in options.items() if key != "bootstrap"}


def _text(cell: Cell) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
