"""`frameloom produce`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.console import EXIT_FAILED, err, make_folder, run, settings_of
from frameloom.quantity import bytes_per_s, seconds
from schemas.claim_uri import UriError
from schemas.errors import ConfigError, FrameloomError
from schemas.frame import Form

if TYPE_CHECKING:
    from frameloom.claim_shelf import ClaimShelf
    from frameloom.segments import SegmentOptions
    from schemas.settings import LimitSettings

_FILES = "Files and folders"
_CAMERAS = "Cameras"
_RATE = "Pace and quality"


class Transport(StrEnum):
    """Of RTSP's pictures."""

    TCP = "tcp"
    UDP = "udp"


def produce(
    *,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Pictures, folders, videos; camera addresses (rtsp://..., http://...); webcam:0;"
            " or - for names of files on standard input.",
        ),
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where frames go.")],
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Given once: one stream of all sources. Once per source: theirs, in order."
            " Else each is called by its name.",
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many records (frames, segments) of each stream."),
    ] = None,
    loop: Annotated[
        bool,
        typer.Option(help="Begin anew at the end, until Ctrl-C.", rich_help_panel=_FILES),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Send files as they are completed in the folders (closed or moved in; Linux).",
            rich_help_panel=_FILES,
        ),
    ] = False,
    existing: Annotated[
        bool,
        typer.Option(
            "--existing", help="With --watch: what is there first.", rich_help_panel=_FILES
        ),
    ] = False,
    fps: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Frames per second of each stream; 0 for as fast as possible. Cameras are thinned"
            " to it. Without it videos keep their own times and stills are not paced.",
            rich_help_panel=_RATE,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES/S",
            help="At most so many bytes per second of all streams together: 500k, 2MB.",
            rich_help_panel=_RATE,
        ),
    ] = None,
    quality: Annotated[
        int,
        typer.Option(
            min=1, max=100, help="Of JPEGs made here (videos, cameras, BMP, TIFF...).",
            rich_help_panel=_RATE,
        ),
    ] = 90,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Lower the quality while the broker is slow, then leave out frames of cameras;"
            " climb back when it is not.",
            rich_help_panel=_RATE,
        ),
    ] = False,
    min_quality: Annotated[
        int, typer.Option(min=1, max=100, help="With --adaptive: no lower.", rich_help_panel=_RATE)
    ] = 30,
    segment: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Send video in segments of so long (1s) instead of single pictures: far"
            " fewer bytes.",
            rich_help_panel=_RATE,
        ),
    ] = None,
    sample_every: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --segment: the worker answers every n-th frame.",
            rich_help_panel=_RATE,
        ),
    ] = None,
    sample_fps: Annotated[
        float | None,
        typer.Option(
            min=0.001, max=1000.0, help="With --segment: the worker answers so many per second.",
            rich_help_panel=_RATE,
        ),
    ] = None,
    buffer: Annotated[
        int,
        typer.Option(
            min=1, max=1000,
            help="Frames of a camera kept while the broker is slow; older ones are dropped.",
            rich_help_panel=_CAMERAS,
        ),
    ] = 32,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="A camera silent for so long is connected to again.",
            rich_help_panel=_CAMERAS,
        ),
    ] = "10s",
    retries: Annotated[
        int | None,
        typer.Option(
            min=0, help="Give a camera up after so many failed tries in a row; else never.",
            rich_help_panel=_CAMERAS,
        ),
    ] = None,
    rtsp_transport: Annotated[
        Transport, typer.Option(help="How RTSP's pictures come.", rich_help_panel=_CAMERAS)
    ] = Transport.TCP,
    ttl_ms: Annotated[
        int | None, typer.Option(min=1, help="Time to live from capture, milliseconds.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="MS", help="Declared time between frames, milliseconds."),
    ] = None,
    claim_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep pictures in this folder, and send records that name them.",
        ),
    ] = None,
    claim_url: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX", help="With --claim-dir: the URI under which workers see the folder;"
            " its own file:// without.",
        ),
    ] = None,
    bare: Annotated[bool, typer.Option("--bare", help="Send the picture's bytes alone.")] = False,
    json_frames: Annotated[
        bool, typer.Option("--json-frames", help="Send JSON objects with base64 data.")
    ] = False,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Send pictures, folders, videos and cameras as frames."""
    form = _form(bare=bare, json_frames=json_frames)
    if form is Form.BARE and (ttl_ms is not None or interval is not None):
        raise ConfigError("--bare: a picture alone cannot carry --ttl-ms or --interval")
    shelf = _shelf(form, claim_dir, claim_url)
    if existing and not watch:
        raise ConfigError("--existing goes with --watch")
    if adaptive and min_quality > quality:
        raise ConfigError(f"--min-quality: {min_quality} is above --quality {quality}")
    settings = settings_of(config, bootstrap)
    cut = _cut(segment, settings.limits)
    if cut is None and (sample_every is not None or sample_fps is not None):
        raise ConfigError("--sample-every and --sample-fps go with --segment")
    if cut is not None:
        _check_segments(form, fps, sample_every, sample_fps, adaptive=adaptive)

    from frameloom.cli_produce_screen import conclude, with_progress
    from frameloom.live_reader import LiveOptions
    from frameloom.network import NetworkOptions
    from frameloom.open_sources import SourceOptions, open_sources
    from frameloom.produce import check_loop, name_streams
    from frameloom.sender import ProduceOptions
    from frameloom.tally import Tally

    network = NetworkOptions(
        timeout_s=seconds(timeout, "--timeout", least=0.5, most=3600.0),
        rtsp_transport=rtsp_transport.value,
    )
    how = SourceOptions(
        limits=settings.limits, quality=quality, segment=cut, buffer=buffer,
        live=LiveOptions(network=network, segment=cut, retries=retries),
        watch=watch, existing=existing,
    )  # fmt: skip
    opened = open_sources(sources, how)
    if loop:
        check_loop(opened)
    streams = name_streams(opened, stream or [])
    options = ProduceOptions(
        topic=topic, fps=fps, loop=loop, count=count, ttl_ms=ttl_ms, interval_ms=interval,
        form=form, max_record_bytes=settings.limits.max_record_bytes,
        bytes_per_s=None if rate is None else bytes_per_s(rate, "--rate"), quality=quality,
        adaptive=min_quality if adaptive else None, live_in_flight=buffer,
        sample_every=sample_every, sample_fps=sample_fps, shelf=shelf,
    )  # fmt: skip
    tally = Tally()
    try:
        run(with_progress(settings.kafka, streams, options, tally))
    except KeyboardInterrupt:
        err.print("stopped")
    except FrameloomError:
        # What was sent before is said; where nothing was, the error says it all (but to machines).
        if json or tally.sent or tally.failed:
            conclude(tally, json=json)
        raise
    conclude(tally, json=json)
    if tally.failed:
        raise typer.Exit(EXIT_FAILED)


def _form(*, bare: bool, json_frames: bool) -> Form:
    if bare and json_frames:
        raise ConfigError("--bare and --json-frames exclude each other")
    if bare:
        return Form.BARE
    return Form.JSON if json_frames else Form.ENVELOPE


def _shelf(form: Form, folder: Path | None, prefix: str | None) -> ClaimShelf | None:
    if folder is None:
        if prefix is not None:
            raise ConfigError("--claim-url goes with --claim-dir")
        return None
    if form is Form.BARE:
        raise ConfigError("--bare: a picture alone cannot be claimed; leave out --bare")
    from frameloom.claim_shelf import ClaimShelf

    make_folder("--claim-dir", folder)
    try:
        return ClaimShelf.at(folder, prefix)
    except UriError as error:
        raise ConfigError(f"--claim-url {prefix}: {error}") from error


def _cut(segment: str | None, limits: LimitSettings) -> SegmentOptions | None:
    if segment is None:
        return None
    from frameloom.segment_cut import SegmentBounds
    from frameloom.segments import SegmentOptions

    most_s = limits.max_segment_ms / 1000
    target_s = seconds(segment, "--segment", least=0.1, most=most_s)
    bounds = SegmentBounds(limits.max_record_bytes, limits.max_segment_frames, most_s)
    return SegmentOptions(target_s, bounds)


def _check_segments(
    form: Form,
    fps: float | None,
    sample_every: int | None,
    sample_fps: float | None,
    *,
    adaptive: bool,
) -> None:
    if form is Form.BARE:
        raise ConfigError("--bare: a segment needs its envelope; leave out --bare or --segment")
    if fps:
        raise ConfigError("--fps: a segment keeps all its frames; use --sample-fps")
    if adaptive:
        raise ConfigError("--adaptive changes the quality of JPEGs, and segments hold none")
    if sample_every is not None and sample_fps is not None:
        raise ConfigError("--sample-every and --sample-fps exclude each other")
