"""`frameloom produce`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.console import EXIT_FAILED, err, out, print_json, printable, run, settings_of
from schemas.errors import ConfigError, FrameloomError
from schemas.frame import Form

if TYPE_CHECKING:
    from frameloom.sender import ProduceOptions, Tally
    from frameloom.sources import FrameSource
    from schemas.settings import KafkaSettings


def produce(
    *,
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Pictures, folders, video files.")
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where frames go.")],
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    stream: Annotated[
        str | None,
        typer.Option(metavar="ID", help="One stream of all sources; else one stream each."),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Frames per second of each stream; 0 for as fast as possible. "
            "Without it videos keep their own times and stills are not paced.",
        ),
    ] = None,
    loop: Annotated[bool, typer.Option(help="Begin anew at the end, until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option(min=1, help="At most so many frames of each stream.")
    ] = None,
    ttl_ms: Annotated[
        int | None, typer.Option(min=1, help="Time to live from capture, milliseconds.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="MS", help="Declared time between frames, milliseconds."),
    ] = None,
    bare: Annotated[bool, typer.Option("--bare", help="Send the picture's bytes alone.")] = False,
    json_frames: Annotated[
        bool, typer.Option("--json-frames", help="Send JSON objects with base64 data.")
    ] = False,
    quality: Annotated[
        int, typer.Option(min=1, max=100, help="Of JPEGs made here (videos, BMP, TIFF...).")
    ] = 90,
    json: JsonOption = False,
) -> None:
    """Send pictures, folders and videos as frames."""
    from frameloom.produce import name_streams  # noqa: PLC0415
    from frameloom.sender import ProduceOptions, Tally  # noqa: PLC0415
    from frameloom.sources import open_sources  # noqa: PLC0415

    form = _form(bare=bare, json_frames=json_frames)
    if form is Form.BARE and (ttl_ms is not None or interval is not None):
        raise ConfigError("--bare: a picture alone cannot carry --ttl-ms or --interval")
    settings = settings_of(config, bootstrap)
    streams = name_streams(open_sources(sources, quality=quality, limits=settings.limits), stream)
    options = ProduceOptions(
        topic=topic, fps=fps, loop=loop, count=count, ttl_ms=ttl_ms, interval_ms=interval,
        form=form, max_record_bytes=settings.limits.max_record_bytes,
    )  # fmt: skip
    tally = Tally()
    try:
        run(_with_progress(settings.kafka, streams, options, tally))
    except KeyboardInterrupt:
        err.print("stopped")
    except FrameloomError:
        # What was sent before is said; where nothing was, the error says it all (but to machines).
        if json or tally.sent or tally.failed:
            _conclude(tally, json=json)
        raise
    _conclude(tally, json=json)
    if tally.failed:
        raise typer.Exit(EXIT_FAILED)


def _form(*, bare: bool, json_frames: bool) -> Form:
    if bare and json_frames:
        raise ConfigError("--bare and --json-frames exclude each other")
    if bare:
        return Form.BARE
    return Form.JSON if json_frames else Form.ENVELOPE


async def _with_progress(
    kafka: KafkaSettings,
    streams: dict[str, list[FrameSource]],
    options: ProduceOptions,
    tally: Tally,
) -> None:
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    from frameloom.produce import produce as send  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err) as progress:
        tasks = {
            stream: progress.add_task(printable(stream), total=_total(sources, options))
            for stream, sources in streams.items()
        }
        await send(
            kafka, streams, options, tally, on_progress=lambda name: progress.advance(tasks[name])
        )


def _total(sources: list[FrameSource], options: ProduceOptions) -> int | None:
    """Frames to expect of a stream, or None where only the end will tell."""
    totals = [source.total for source in sources]
    known = sum(total for total in totals if total is not None)
    if options.loop or None in totals:
        return options.count
    return known if options.count is None else min(known, options.count)


def _conclude(tally: Tally, *, json: bool) -> None:
    for name, why in tally.failures.items():
        err.print(f"{name}: {why}", style="red", markup=False, soft_wrap=True)
    unnamed = tally.failed - len(tally.failures)
    if unnamed > 0:
        err.print(f"... and {unnamed} more", style="red")
    if json:
        print_json(tally)
    else:
        megabytes = tally.sent_bytes / 1e6
        out.print(f"sent {tally.sent} frames ({megabytes:.1f} MB), failed {tally.failed}")
