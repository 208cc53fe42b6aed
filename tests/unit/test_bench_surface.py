"""What `frameloom bench surface` prints and plots."""

from __future__ import annotations

from pathlib import Path

from bench.surface import BucketSurface, document, rows_of
from bench.surface_plot import plot
from frameloom.cli_bench_surface import table_of

FOUND = BucketSurface(
    "default", "480p", "256x448", "torch", rows_of({4: 0.02, 1: 0.01, 8: 0.04}), plateau=4
)


def test_rows_rise_and_hold_both_figures() -> None:
    assert [(row.batch, row.milliseconds, row.img_per_s) for row in FOUND.rows] == [
        (1, 10.0, 100.0), (4, 20.0, 200.0), (8, 40.0, 200.0)
    ]  # fmt: skip
    (shown,) = document([FOUND])
    assert shown["plateau"] == 4
    assert shown["shape"] == "256x448"


def test_the_plateau_is_marked() -> None:
    table = table_of(FOUND)
    assert list(table.columns[3].cells) == ["", "plateau", ""]
    between = BucketSurface("r", "b", "32x32", "torch", FOUND.rows, plateau=3)
    assert "plateau at 3" in str(table_of(between).caption)


def test_the_plot_is_a_png(tmp_path: Path) -> None:
    file = tmp_path / "plots" / "surface.png"
    between = BucketSurface("r", "b", "32x32", "torch", FOUND.rows, plateau=3)
    plot([FOUND, FOUND, between], file)
    assert file.read_bytes().startswith(b"\x89PNG")
