"""`frameloom bench ...`: how fast this machine is, part by part. The work is in `bench/`.

Every command measures ratios within one run, prints a table with the goals, and can write the
figures as JSON and a plot. Commands that need Kafka start the embedded broker, unless one is named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from frameloom import cli_bench_surface
from frameloom.console import rest_idle_threads, sigterm_interrupts
from schemas.errors import ConfigError
from schemas.settings import Backend

app = typer.Typer(
    help="Measure this machine: ratios in one run, JSON and plots.", no_args_is_help=True
)
app.command("surface")(cli_bench_surface.surface)

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", metavar="HOST:PORT", help="A Kafka to use; else the embedded one is started."
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="F", help="Write the figures.")]
PlotFile = Annotated[Path | None, typer.Option("--plot", metavar="F", help="Write a plot (PNG).")]
Frames = Annotated[int, typer.Option(min=8, help="Frames in a round.")]
Repeats = Annotated[int, typer.Option(min=1, help="Rounds of each side, in turn.")]
BackendOption = Annotated[Backend, typer.Option(help="What runs the model.")]
MaxBatch = Annotated[
    int, typer.Option(min=1, metavar="N", help="Largest batch of every bucket, as in cpu.yaml.")
]
Main = Callable[[list[str]], int]


class PictureFormat(StrEnum):
    """What `bench decode` decodes."""

    JPEG = "jpeg"
    PNG = "png"
    WEBP = "webp"
    BMP = "bmp"
    TIFF = "tiff"


@app.command()
def ceiling(
    *,
    bootstrap: BrokerOption = None,
    frames: Frames = 256,
    repeats: Repeats = 3,
    backend: BackendOption = Backend.AUTO,
    decode_threads: Annotated[int, typer.Option(min=0, help="0: the worker's choice.")] = 0,
    model_threads: Annotated[int, typer.Option(min=0, help="0: the worker's choice.")] = 0,
    max_batch: MaxBatch = 4,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Ingest, decode and model apart; the engine from memory against Kafka end to end."""
    files = _files(json, plot)
    rest_idle_threads()
    from bench.ceiling import main

    arguments = ["--frames", str(frames), "--repeats", str(repeats), "--backend", backend]
    arguments += ["--decode-threads", str(decode_threads), "--model-threads", str(model_threads)]
    arguments += ["--max-batch", str(max_batch)]
    with _broker(bootstrap) as broker:
        arguments += [] if broker.pid is None else ["--broker", str(broker.pid)]
        raise typer.Exit(main([*arguments, "--bootstrap", broker.address, *files]))


@app.command()
def overlap(
    *,
    frames: Frames = 86,
    repeats: Repeats = 3,
    backend: BackendOption = Backend.AUTO,
    scripted_only: Annotated[
        bool, typer.Option(help="Stages that only wait: the engine's own doing.")
    ] = False,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """The sum of the stages against the time on the clock, and the cores split in several ways."""
    rest_idle_threads()
    from bench.overlap import main

    arguments = ["--frames", str(frames), "--repeats", str(repeats), "--backend", backend]
    _end(main, arguments + ["--scripted-only"] * scripted_only, json, plot)


@app.command()
def shapes(
    *,
    frames: Frames = 129,
    repeats: Repeats = 3,
    backend: BackendOption = Backend.AUTO,
    max_batch: MaxBatch = 4,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Rectangular buckets against square padding."""
    rest_idle_threads()
    from bench.shapes import main

    arguments = ["--frames", str(frames), "--repeats", str(repeats), "--backend", backend]
    _end(main, [*arguments, "--max-batch", str(max_batch)], json, plot)


@app.command()
def overhead(
    *,
    bootstrap: BrokerOption = None,
    frames: Frames = 4_000,
    repeats: Repeats = 5,
    sizes: Annotated[
        list[int] | None, typer.Option("--size", min=1, help="KiB of a record; may be repeated.")
    ] = None,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Processor time per frame with a model that does nothing, against a bare Kafka loop."""
    from bench.overhead import main

    arguments = ["--frames", str(frames), "--repeats", str(repeats)]
    arguments += ["--sizes", *map(str, sizes)] if sizes else []
    _on_kafka(main, arguments, bootstrap, json, plot)


@app.command()
def ingest(
    *,
    bootstrap: BrokerOption = None,
    frames: Frames = 6_000,
    repeats: Repeats = 3,
    size: Annotated[int, typer.Option(min=1, help="KiB of a record.")] = 20,
    processes: Annotated[
        list[int] | None, typer.Option("--processes", min=1, help="May be repeated; else 1 and 2.")
    ] = None,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Frames per second of one worker process and of several, with a model that does nothing."""
    from bench.ingest import main

    arguments = ["--frames", str(frames), "--repeats", str(repeats), "--kib", str(size)]
    arguments += ["--processes", *map(str, processes)] if processes else []
    _on_kafka(main, arguments, bootstrap, json, plot)


@app.command()
def decode(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Of each decoder, in turn.")] = 4,
    threads: Annotated[int, typer.Option(min=1, help="Of each decoder.")] = 1,
    formats: Annotated[
        list[PictureFormat] | None, typer.Option("--format", help="May be repeated; else all.")
    ] = None,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """DALI against OpenCV, by format and size."""
    from bench.decode import main

    arguments = ["--rounds", str(rounds), "--threads", str(threads)]
    _end(main, arguments + (["--formats", *formats] if formats else []), json, plot)


@app.command()
def peers(
    *,
    bootstrap: BrokerOption = None,
    frames: Frames = 129,
    repeats: Repeats = 3,
    weights: Annotated[Path, typer.Option(metavar="PATH", help="Of all sides.")] = Path(
        "bench/assets/frameloom-demo.pt"
    ),
    backend: BackendOption = Backend.AUTO,
    json: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """The worker against the loops most people write, on mixed streams."""
    if not weights.is_file():
        raise ConfigError(f"--weights {weights}: there is no such file")
    rest_idle_threads()
    from bench.peers import main

    arguments = ["--frames", str(frames), "--repeats", str(repeats), "--weights", str(weights)]
    _on_kafka(main, [*arguments, "--backend", backend], bootstrap, json, plot)


@app.command()
def backends(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Of each backend, in turn.")] = 5,
    threads: Annotated[int, typer.Option(min=0, help="Of the model; 0: all cores.")] = 0,
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Gets backends.json and backends.png.")
    ] = Path("out/backends"),
) -> None:
    """torch, ONNX Runtime and OpenVINO side by side: speed, and difference from torch."""
    rest_idle_threads()
    from bench.backends import main

    arguments = ["--rounds", str(rounds), "--threads", str(threads), "--out", str(folder)]
    raise typer.Exit(main(arguments))


def _on_kafka(
    main: Main, arguments: list[str], bootstrap: str | None, json: Path | None, plot: Path | None
) -> None:
    files = _files(json, plot)
    with _broker(bootstrap) as broker:
        raise typer.Exit(main([*arguments, "--bootstrap", broker.address, *files]))


def _end(main: Main, arguments: list[str], json: Path | None, plot: Path | None) -> None:
    """Exit code 0: all goals are met; 1: one is missed."""
    raise typer.Exit(main([*arguments, *_files(json, plot)]))


def _files(json: Path | None, plot: Path | None) -> list[str]:
    """The files as the benches take them. Raises ConfigError where one cannot be written."""
    from bench.report import check_files

    check_files(json, plot)
    files = {"--json": json, "--plot": plot}
    return [part for option, file in files.items() if file for part in (option, str(file))]


@dataclass(frozen=True, slots=True)
class _Broker:
    address: str
    pid: int | None = None


@contextlib.contextmanager
def _broker(bootstrap: str | None) -> Generator[_Broker]:
    if bootstrap is not None:
        yield _Broker(bootstrap)
        return
    from frameloom.broker import EmbeddedBroker

    with sigterm_interrupts(), EmbeddedBroker() as embedded:
        yield _Broker(embedded.bootstrap_servers, embedded.pid)
