"""`frameloom bench ...`: how fast this machine is, part by part. The work is in `bench/`."""

from __future__ import annotations

import typer

from frameloom import cli_bench_surface

app = typer.Typer(
    help="Measure this machine: ratios in one run, JSON and plots.", no_args_is_help=True
)
app.command("surface")(cli_bench_surface.surface)
