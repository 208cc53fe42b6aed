"""The slow device's memory as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl


def plot_memory(rows: Sequence[tuple[float, float, int]], path: Path) -> None:
    """Draw seconds → MiB of the worker, above the records that wait, as a PNG.

    Args:
        rows: seconds, MiB, records.
        path: where to.
    """
    mpl.use("agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 (the backend is chosen first)

    seconds, memory, waiting = zip(*rows, strict=True)
    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(8, 4.5), dpi=110)
    upper.plot(seconds, memory, color="#205493")
    upper.set_ylim(0, max(memory) * 1.25)
    upper.set_ylabel("worker's memory, MiB")
    upper.set_title("Device ten times slower than the input")
    lower.plot(seconds, waiting, color="#b04a2f")
    lower.set_ylim(0, None)
    lower.set_ylabel("records not answered")
    lower.set_xlabel("seconds since the device slowed down")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
