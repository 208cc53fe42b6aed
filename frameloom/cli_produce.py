"""`frameloom produce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.cli_produce_options import (
    AdaptiveOption,
    BareOption,
    BufferOption,
    ClaimDirOption,
    ClaimUrlOption,
    CountOption,
    ExistingOption,
    FpsOption,
    IntervalMsOption,
    JsonFramesOption,
    LoopOption,
    MinQualityOption,
    QualityOption,
    RateOption,
    RetriesOption,
    RtspTransportOption,
    SampleEveryOption,
    SampleFpsOption,
    SegmentOption,
    SourcesArgument,
    StreamOption,
    TimeoutOption,
    TopicOption,
    Transport,
    TtlMsOption,
    WatchOption,
)
from frameloom.console import EXIT_FAILED, err, make_folder, run, settings_of
from frameloom.quantity import bytes_per_s, seconds
from schemas.claim_uri import UriError
from schemas.errors import ConfigError, FrameloomError
from schemas.frame import Form

if TYPE_CHECKING:
    from frameloom.claim_shelf import ClaimShelf
    from frameloom.open_sources import AnySource
    from frameloom.segments import SegmentOptions
    from frameloom.sender import ProduceOptions
    from schemas.settings import KafkaSettings, LimitSettings


def produce(
    *,
    sources: SourcesArgument,
    topic: TopicOption,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    stream: StreamOption = None,
    count: CountOption = None,
    loop: LoopOption = False,
    watch: WatchOption = False,
    existing: ExistingOption = False,
    fps: FpsOption = None,
    rate: RateOption = None,
    quality: QualityOption = 90,
    adaptive: AdaptiveOption = False,
    min_quality: MinQualityOption = 30,
    segment: SegmentOption = None,
    sample_every: SampleEveryOption = None,
    sample_fps: SampleFpsOption = None,
    buffer: BufferOption = 32,
    timeout: TimeoutOption = "10s",
    retries: RetriesOption = None,
    rtsp_transport: RtspTransportOption = Transport.TCP,
    ttl_ms: TtlMsOption = None,
    interval_ms: IntervalMsOption = None,
    claim_dir: ClaimDirOption = None,
    claim_url: ClaimUrlOption = None,
    bare: BareOption = False,
    json_frames: JsonFramesOption = False,
    json: JsonOption = False,
) -> None:
    """Send pictures, folders, videos and cameras as frames."""
    form = _form(bare=bare, json_frames=json_frames)
    if form is Form.BARE and (ttl_ms is not None or interval_ms is not None):
        raise ConfigError("--bare: a picture alone cannot carry --ttl-ms or --interval-ms")
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

    from frameloom.live_reader import LiveOptions
    from frameloom.network import NetworkOptions
    from frameloom.open_sources import SourceOptions, open_sources
    from frameloom.produce import check_loop, name_streams
    from frameloom.sender import ProduceOptions

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
        topic=topic, fps=fps, loop=loop, count=count, ttl_ms=ttl_ms, interval_ms=interval_ms,
        form=form, max_record_bytes=settings.limits.max_record_bytes,
        bytes_per_s=None if rate is None else bytes_per_s(rate, "--rate"), quality=quality,
        adaptive=min_quality if adaptive else None, live_in_flight=buffer,
        sample_every=sample_every, sample_fps=sample_fps, shelf=shelf,
    )  # fmt: skip
    _send(settings.kafka, streams, options, json=json)


def _send(
    kafka: KafkaSettings,
    streams: dict[str, list[AnySource]],
    options: ProduceOptions,
    *,
    json: bool,
) -> None:
    from frameloom.cli_produce_screen import conclude, with_progress
    from frameloom.tally import Tally

    tally = Tally()
    try:
        run(with_progress(kafka, streams, options, tally))
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
