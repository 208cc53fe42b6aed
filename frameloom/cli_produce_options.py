"""Options of `frameloom produce`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

_FILES = "Files and folders"
_CAMERAS = "Cameras"
_RATE = "Pace and quality"


class Transport(StrEnum):
    """Of RTSP's pictures."""

    TCP = "tcp"
    UDP = "udp"


SourcesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="Pictures, folders, videos; camera addresses (rtsp://..., http://...); webcam:0;"
        " or - for names of files on standard input.",
    ),
]
TopicOption = Annotated[str, typer.Option("--topic", "-t", help="Where frames go.")]
StreamOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID",
        help="Given once: one stream of all sources. Once per source: theirs, in order."
        " Else each is called by its name.",
    ),
]
CountOption = Annotated[
    int | None,
    typer.Option(min=1, help="At most so many records (frames, segments) of each stream."),
]
LoopOption = Annotated[
    bool,
    typer.Option(help="Begin anew at the end, until Ctrl-C.", rich_help_panel=_FILES),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="Send files as they are completed in the folders (closed or moved in; Linux).",
        rich_help_panel=_FILES,
    ),
]
ExistingOption = Annotated[
    bool,
    typer.Option("--existing", help="With --watch: what is there first.", rich_help_panel=_FILES),
]
FpsOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Frames per second of each stream; 0 for as fast as possible. Cameras are thinned"
        " to it. Without it videos keep their own times and stills are not paced.",
        rich_help_panel=_RATE,
    ),
]
RateOption = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES/S",
        help="At most so many bytes per second of all streams together: 500k, 2MB.",
        rich_help_panel=_RATE,
    ),
]
QualityOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=100,
        help="Of JPEGs made here (videos, cameras, BMP, TIFF...).",
        rich_help_panel=_RATE,
    ),
]
AdaptiveOption = Annotated[
    bool,
    typer.Option(
        "--adaptive",
        help="Lower the quality while the broker is slow, then leave out frames of cameras;"
        " climb back when it is not.",
        rich_help_panel=_RATE,
    ),
]
MinQualityOption = Annotated[
    int, typer.Option(min=1, max=100, help="With --adaptive: no lower.", rich_help_panel=_RATE)
]
SegmentOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Send video in segments of so long (1s) instead of single pictures: far fewer bytes.",
        rich_help_panel=_RATE,
    ),
]
SampleEveryOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --segment: the worker answers every n-th frame.",
        rich_help_panel=_RATE,
    ),
]
SampleFpsOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        max=1000.0,
        help="With --segment: the worker answers so many per second.",
        rich_help_panel=_RATE,
    ),
]
BufferOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=1000,
        help="Frames of a camera kept while the broker is slow; older ones are dropped.",
        rich_help_panel=_CAMERAS,
    ),
]
TimeoutOption = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="A camera silent for so long is connected to again.",
        rich_help_panel=_CAMERAS,
    ),
]
RetriesOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Give a camera up after so many failed tries in a row; else never.",
        rich_help_panel=_CAMERAS,
    ),
]
RtspTransportOption = Annotated[
    Transport, typer.Option(help="How RTSP's pictures come.", rich_help_panel=_CAMERAS)
]
TtlMsOption = Annotated[
    int | None, typer.Option(min=1, help="Time to live from capture, milliseconds.")
]
IntervalMsOption = Annotated[
    float | None,
    typer.Option(min=0.001, help="Declared time between frames, milliseconds."),
]
ClaimDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Keep pictures in this folder, and send records that name them.",
    ),
]
ClaimUrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="PREFIX",
        help="With --claim-dir: the URI under which workers see the folder;"
        " its own file:// without.",
    ),
]
BareOption = Annotated[bool, typer.Option("--bare", help="Send the picture's bytes alone.")]
JsonFramesOption = Annotated[
    bool, typer.Option("--json-frames", help="Send JSON objects with base64 data.")
]
