"""`frameloom bench surface`: how long the model takes, by bucket and batch size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from frameloom.cli_options import ConfigOption, JsonOption, SetOption
from frameloom.console import err, out, print_json, rest_idle_threads, settings_of

if TYPE_CHECKING:
    from bench.surface import BucketSurface


def surface(
    *,
    config: ConfigOption = None,
    overrides: SetOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="All powers of two, up to a minute for each route.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="F", help="Write a plot (PNG).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the models of the settings' routes anew: latency and speed by batch size.

    Workers that start next find what was measured, in device.model_cache_dir.
    """
    from bench.report import check_files

    check_files(None, plot)
    settings = settings_of(config, None, overrides)
    rest_idle_threads()
    err.print("loading the models ...")
    from bench.surface import document, measure
    from workers.logs import configure

    configure(settings.log)

    surfaces = measure(settings, full=full)
    if plot is not None:
        from bench.surface_plot import plot as draw

        draw(surfaces, plot)
    if json:
        print_json(document(surfaces))
        return
    for each in surfaces:
        out.print(table_of(each))
    if plot is not None:
        out.print(f"plot: {plot}", markup=False)


def table_of(found: BucketSurface) -> Table:
    """One bucket, its plateau marked."""
    table = Table(
        title=f"{found.route} / {found.bucket}: {found.shape}, {found.backend}",
        title_justify="left",
    )
    for name in ("batch", "ms", "img/s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in found.rows:
        mark = "plateau" if row.batch == found.plateau else ""
        table.add_row(str(row.batch), f"{row.milliseconds:.1f}", f"{row.img_per_s:.1f}", mark)
    if found.plateau is not None and found.plateau not in {row.batch for row in found.rows}:
        table.caption = f"plateau at {found.plateau} (between measured sizes)"
    return table
