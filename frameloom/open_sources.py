"""From the arguments of `frameloom produce` to its sources."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from frameloom.address import Address, Kind, read_address
from frameloom.feed import FileFeed
from frameloom.listed import ListedPaths
from frameloom.live import LiveSource
from frameloom.live_reader import LiveOptions
from frameloom.segment_file import SegmentFile
from frameloom.segments import SegmentOptions
from frameloom.sources import PICTURE_SUFFIXES, FrameSource, PictureFiles, Video, VideoFile
from frameloom.video import VIDEO_SUFFIXES
from schemas.errors import ConfigError
from schemas.settings import LimitSettings

AnySource = FrameSource | FileFeed | LiveSource


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How sources are read.

    Attributes:
        limits: of the worker; pictures beyond them are not sent.
        quality: of JPEGs made here, 1..100.
        segment: cut videos and cameras into segments; None for pictures.
        live: how cameras are read.
        buffer: frames of a camera kept while the broker is slow.
        watch: folders are watched instead of read.
        existing: what lies in a watched folder already is sent first.
    """

    limits: LimitSettings
    quality: int = 90
    segment: SegmentOptions | None = None
    live: LiveOptions = field(default_factory=LiveOptions)
    buffer: int = 32
    watch: bool = False
    existing: bool = False


def open_sources(arguments: Sequence[str], options: SourceOptions) -> list[AnySource]:
    """Turn the arguments into sources: each camera, folder and video is a stream, the files of
    a list are another, and all pictures named one by one are together another, `stills`.

    A folder's pictures are taken in the order of their names; its videos are streams too, unless
    the folder is watched.

    Raises:
        ConfigError: an argument does not exist, is no address, is given twice, or is a folder
            without any frames.
    """
    loose: list[Path] = []
    sources: list[AnySource] = []
    seen: set[str] = set()
    watched = False
    for argument in arguments:
        address = _address(argument)
        if address.kind is Kind.FILE:
            path = Path(argument)
            watched = watched or path.is_dir()
            sources += _files(path, loose, options)
            continue
        if address.target in seen:
            raise ConfigError(f"{address.shown} is given twice")
        seen.add(address.target)
        sources.append(_open(address, options))
    if options.watch and not watched:
        raise ConfigError("--watch: no folder is given that could be watched")
    if loose:
        sources.insert(0, _pictures("stills", loose, options))
    return sources


def open_file(path: Path, options: SourceOptions) -> FrameSource:
    """A picture or a video as a source, told apart by its suffix."""
    if path.suffix.lower() not in VIDEO_SUFFIXES:
        return _pictures(path.stem, [path], options)
    return _video(Video(str(path), path.stem, path.name), options)


def _address(argument: str) -> Address:
    if Path(argument).is_file():
        # A file that is called `0`, or whatever else an address may look like.
        return Address(Kind.FILE, argument, argument, Path(argument).stem)
    return read_address(argument, os.environ)


def _open(address: Address, options: SourceOptions) -> AnySource:
    if address.kind is Kind.LIST:
        names = ListedPaths(sys.stdin.buffer)
        return FileFeed(address.name, names, lambda path: open_file(path, options))
    if address.kind is Kind.RECORDING:
        return _video(Video(address.target, address.name, address.shown), options)
    return LiveSource(address, options.live, buffer=options.buffer, limits=options.limits)


def _files(path: Path, loose: list[Path], options: SourceOptions) -> list[AnySource]:
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder")
    if path.is_dir():
        return [_watched(path, options)] if options.watch else _folder(path, options)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        return [open_file(path, options)]
    loose.append(path)
    return []


def _watched(path: Path, options: SourceOptions) -> FileFeed:
    if sys.platform != "linux":
        raise ConfigError("--watch needs Linux: other kernels do not say when a file is complete")
    from frameloom.watch import WatchedPaths

    suffixes = PICTURE_SUFFIXES | VIDEO_SUFFIXES
    names = WatchedPaths(path, suffixes, existing=options.existing)
    return FileFeed(_folder_name(path), names, lambda path: open_file(path, options))


def _folder(path: Path, options: SourceOptions) -> list[AnySource]:
    try:
        files = sorted(entry for entry in path.iterdir() if entry.is_file())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    pictures = [file for file in files if file.suffix.lower() in PICTURE_SUFFIXES]
    videos = [file for file in files if file.suffix.lower() in VIDEO_SUFFIXES]
    if not pictures and not videos:
        raise ConfigError(f"{path}: the folder has neither pictures nor videos")
    sources: list[AnySource] = [open_file(file, options) for file in videos]
    if pictures:
        sources.insert(0, _pictures(_folder_name(path), pictures, options))
    return sources


def _folder_name(path: Path) -> str:
    return path.resolve().name or "stills"


def _pictures(name: str, paths: Sequence[Path], options: SourceOptions) -> PictureFiles:
    return PictureFiles(name, paths, quality=options.quality, limits=options.limits)


def _video(video: Video, options: SourceOptions) -> FrameSource:
    if options.segment is not None:
        return SegmentFile(video, options.segment)
    return VideoFile(video, quality=options.quality)
