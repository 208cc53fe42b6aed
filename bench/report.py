"""What a bench found: one shape for all of them, printed, as JSON, and as a plot."""

from __future__ import annotations

import errno
import itertools
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from schemas.errors import ConfigError

Cell = str | int | float | bool | None

PLOTS = (".png", ".svg", ".pdf")
"""How the names of plots end."""
MOST_OF_A_PART = 1.05
"""Repeats on a quiet machine differ by less."""
WIDTH = 80
"""Columns of a terminal."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure should be, and what it is.

    Attributes:
        name: what was compared.
        value: measured.
        goal: to be reached.
        at_most: whether the goal is a ceiling; else it is a floor.
        part: whether the figure is one thing over what contains it, so that no measurement that is
            worth anything finds more than 1.
    """

    name: str
    value: float
    goal: float
    at_most: bool = False
    part: bool = False

    @property
    def doubtful(self) -> bool:
        """More than can be, noise allowed for: the rounds were too short, or others had the
        machine."""
        return self.part and self.value > MOST_OF_A_PART

    @property
    def met(self) -> bool:
        if self.doubtful:
            return False
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
    """The least and the most of several repeats, for a table; nothing of a single one."""
    if len(values) < 2:
        return ""
    return f"{min(values):.3g} to {max(values):.3g}"


def median(values: Sequence[float]) -> float:
    """Of several repeats; rounded, because nothing here is known to more than four places."""
    return float(f"{statistics.median(values):.4g}")


def show(document: Document) -> None:
    """The table and the goals on standard output. A table that is wider than a terminal comes in
    several parts, one below the other, each with the rows' names."""
    print(f"{document.bench} on {document.machine['processor']} × {document.machine['cores']}")
    if document.rows:
        parts = table_parts(document.rows)
        print("\n\n".join(parts), end="\n\n" if len(parts) > 1 else "\n")
    for goal in document.goals:
        relation = "≤" if goal.at_most else "≥"
        verdict = "DOUBT" if goal.doubtful else "met" if goal.met else "MISSED"
        print(f"{verdict:>6}  {goal.name}: {goal.value:.3g} (goal {relation} {goal.goal:g})")
    if any(goal.doubtful for goal in document.goals):
        print(
            "warning: what is in doubt cannot be more than 1, and does not count as met: the\n"
            "rounds were too short (raise --frames or --repeats), or the machine was busy."
        )


def table_parts(rows: Sequence[Mapping[str, Cell]], width: int = WIDTH) -> list[str]:
    """A table, split between its columns where it is wider than a terminal. The rows' names
    (the first column, and text beside it) begin every part, and a spread stays beside its figure.
    Columns without a single entry are left out.
    """
    texts = itertools.takewhile(lambda name: isinstance(rows[0][name], str), rows[0])
    leading = max(1, len(list(texts)))
    columns = [_column(name, rows) for name in rows[0]]
    names, others = columns[:leading], columns[leading:]
    parts = [[*names]]
    for group in _groups([column for column in others if any(column[1:])]):
        taken = sum(len(column[0]) + 2 for column in (*parts[-1], *group)) - 2
        if taken > width and len(parts[-1]) > leading:
            parts.append([*names])
        parts[-1] += group
    return ["\n".join("  ".join(line).rstrip() for line in zip(*p, strict=True)) for p in parts]


def _column(name: str, rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    """Heading and entries, all of one length; empty ones where there is no entry at all."""
    cells = [_text(row[name]) for row in rows]
    if not any(cells):
        return [name, *cells]
    wide = max(map(len, (name, *cells)))
    leads = name == next(iter(rows[0]))
    return [cell.ljust(wide) if leads else cell.rjust(wide) for cell in (name, *cells)]


def _groups(columns: Sequence[list[str]]) -> list[list[list[str]]]:
    groups: list[list[list[str]]] = []
    for column in columns:
        if groups and column[0].strip().endswith("from-to"):
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


def write(document: Document, json: Path | None, plot: Path | None) -> None:
    """The files that were asked for; folders are made."""
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(document), indent=1)
        json.write_bytes(text + b"\n")
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        draw(document.bars, plot)


def check_files(json: Path | None, plot: Path | None, option: str = "") -> None:
    """Refuse, before anything is measured, what could not be written afterwards. Folders are made.

    Args:
        option: that named both; else they are those of `--json` and `--plot`.

    Raises:
        ConfigError: a file cannot be written, or a plot's name ends as no plot's does.
    """
    for file, named in ((json, option or "--json"), (plot, option or "--plot")):
        if file is None:
            continue
        try:
            _try_writing(file)
        except OSError as error:
            raise ConfigError(f"{named} {file}: cannot be written: {error.strerror}") from error
    if plot is not None and plot.suffix.lower() not in PLOTS:
        raise ConfigError(f"{option or '--plot'} {plot}: its name ends with {' or '.join(PLOTS)}")


def _try_writing(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not file.exists():
        file.touch()
        file.unlink()
    elif not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


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
