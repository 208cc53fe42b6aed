"""The `frameloom` command: options in, exit code out. The work is in the modules it calls.

Those are imported inside the commands: `--help` and quick commands must not wait for torch,
OpenCV or Kafka clients.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from frameloom import (
    cli_audit,
    cli_bench,
    cli_consume,
    cli_dlq,
    cli_doctor,
    cli_export,
    cli_produce,
    cli_topics,
)
from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption, SetOption
from frameloom.console import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_USAGE,
    err,
    out,
    print_json,
    rest_idle_threads,
    run,
    settings_of,
    sigterm_interrupts,
)
from schemas.errors import ConfigError, FrameloomError

_INTERRUPTED = 130
"""What Typer makes of a KeyboardInterrupt, and shells of a program that Ctrl-C ended."""

app = typer.Typer(
    name="frameloom",
    help="Frames in on Kafka, YOLOv8 detections out; every frame is answered.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the process's exit code: 0 done, 1 failed, 2 usage or settings, 130
    interrupted."""
    # The library's warnings about a broker that is away repeat what our errors say once.
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as ended:
        if ended.code == _INTERRUPTED:
            err.print("interrupted")
        return ended.code if isinstance(ended.code, int) else EXIT_FAILED
    except ConfigError as error:
        err.print(f"[bold red]error:[/] {_plain(error)}", soft_wrap=True)
        return EXIT_USAGE
    except FrameloomError as error:
        err.print(f"[bold red]failed:[/] {_plain(error)}", soft_wrap=True)
        return EXIT_FAILED
    return EXIT_DONE


def _plain(error: FrameloomError) -> str:
    from rich.markup import escape

    return escape(str(error))


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        out.print(f"frameloom {version('frameloom')}", markup=False)
        raise typer.Exit


@app.callback()
def frameloom(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_say_version, help="Say which version this is."
        ),
    ] = False,
) -> None:
    """Frames in on Kafka, YOLOv8 detections out; every frame is answered."""


@app.command()
def worker(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    overrides: SetOption = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start the worker again when it dies.")
    ] = False,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="One worker process on each: 0,1 (CUDA), 0,0 (two on one), cpu,cpu, or all. Each "
            "is started again when it dies; one port serves the metrics of all.",
        ),
    ] = None,
    # What a parent tells the workers of `--devices`.
    seat_device: Annotated[str | None, typer.Option(hidden=True)] = None,
    seat_listener: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the detection worker until SIGTERM or Ctrl-C, then drain."""
    settings = settings_of(config, bootstrap, overrides)
    if devices is not None:
        from frameloom.fleet import run_devices

        raise typer.Exit(run_devices(devices, settings, config, bootstrap, overrides or ()))
    if restart:
        from frameloom.supervise import supervise_worker

        raise typer.Exit(supervise_worker(settings.log, config, bootstrap, overrides or ()))
    rest_idle_threads()
    from workers.detect import run_worker
    from workers.seat import take_seat

    raise typer.Exit(run_worker(settings, seat=take_seat(seat_device, seat_listener)))


@app.command()
def broker(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="TCP port; 0 for a free one.")] = 9092,
    json: JsonOption = False,
) -> None:
    """Run the embedded broker in the foreground (memory only: for trying things out)."""
    from frameloom.broker import EmbeddedBroker

    with sigterm_interrupts(), EmbeddedBroker(port or None) as embedded:
        address = embedded.bootstrap_servers
        if json:
            print_json({"bootstrap_servers": address, "pid": embedded.pid})
        else:
            out.print(f"broker at [bold]{address}[/] (memory only); Ctrl-C ends it")
        try:
            embedded.wait()
        except KeyboardInterrupt:
            err.print("stopped")


@app.command()
def demo(
    *,
    streams: Annotated[
        int, typer.Option(min=6, max=200, help="How many camera streams to play.")
    ] = 6,
    seconds: Annotated[float, typer.Option(min=2.0, help="How long frames are produced.")] = 20.0,
    model: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Other detection weights, e.g. yolov8n.pt."),
    ] = None,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Report, contact sheet and logs.")
    ] = Path("out/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the drawn scenes.")] = 7,
    json: JsonOption = False,
) -> None:
    """See it work: broker, producers, worker, a report and an annotated contact sheet."""
    rest_idle_threads()
    from frameloom.demo import DemoOptions, demo_exit_code, run_demo
    from frameloom.demo_screen import show_report

    options = DemoOptions(streams=streams, seconds=seconds, model=model, folder=folder, seed=seed)
    report = run(run_demo(options))
    show_report(report, folder, json=json)
    raise typer.Exit(demo_exit_code(report))


app.command("produce")(cli_produce.produce)
app.command("consume")(cli_consume.consume)
app.command("audit")(cli_audit.audit)
app.command("doctor")(cli_doctor.doctor)
app.command("export")(cli_export.export)
app.add_typer(cli_bench.app, name="bench")
app.add_typer(cli_topics.app, name="topics")
app.add_typer(cli_dlq.app, name="dlq")
