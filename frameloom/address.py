"""What a source argument means: a camera's address, or files; and how it may be shown.

An address carries credentials more often than not. `shown` is the only form of it that may reach
a terminal, a log, a stream id or an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from urllib.parse import quote, urlsplit

from schemas.errors import ConfigError

_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"]+", re.IGNORECASE)
_WEBCAM = re.compile(r"^(?:webcam:(\d+)|(\d+))$", re.IGNORECASE)
_DEVICE = re.compile(r"^/dev/video(\d+)$")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

_SCHEMES = frozenset({
    "rtsp", "rtsps", "rtmp", "rtmps", "http", "https", "udp", "tcp", "rtp", "srt",
})  # fmt: skip
_RECORDED = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi"})
"""A web address that ends so is a recording: played once, at its own times, nothing dropped."""


class Kind(StrEnum):
    """How a source is read."""

    NETWORK = "network"
    """A stream without an end, over the network."""
    WEBCAM = "webcam"
    """A camera of this machine."""
    RECORDING = "recording"
    """A video file behind a web address."""
    FILE = "file"
    """A file or a folder."""
    LIST = "list"
    """Names of files, one a line, on standard input."""


@dataclass(frozen=True, slots=True)
class Address:
    """One source argument, understood.

    Attributes:
        kind: how it is read.
        target: what to open: a URL with its credentials, a webcam's device, or a path. Never
            to be shown.
        shown: the same for people, without credentials and query.
        name: what the stream is called unless the user says otherwise.
    """

    kind: Kind
    target: str
    shown: str
    name: str

    def __repr__(self) -> str:
        # A traceback or a debug line must not give the password away either.
        return f"Address({self.kind.value}, {self.shown})"


def read_address(argument: str, environment: Mapping[str, str]) -> Address:
    """Understand a source argument.

    `${NAME}` in an address stands for an environment variable, percent-encoded, so that a
    password need not stand in the command line, which every user of the machine can read.

    Raises:
        ConfigError: a scheme that is not known, no host, or a variable that is not set.
    """
    if argument == "-":
        return Address(Kind.LIST, "-", "standard input", "stdin")
    webcam = _WEBCAM.match(argument)
    if webcam:
        number = webcam[1] or webcam[2]
        return Address(Kind.WEBCAM, number, f"webcam:{number}", f"webcam-{number}")
    device = _DEVICE.match(argument)
    if device:
        return Address(Kind.WEBCAM, argument, argument, f"webcam-{device[1]}")
    scheme = _SCHEME.match(argument)
    if not scheme:
        return Address(Kind.FILE, argument, argument, PurePosixPath(argument).stem)
    if scheme[1].lower() not in _SCHEMES:
        known = " ".join(sorted(_SCHEMES))
        raise ConfigError(f"{_shown(argument)}: unknown scheme; known are {known}")
    return _network(_VARIABLE.sub(lambda found: _value(found[1], environment), argument))


def masked(text: str) -> str:
    """The text with what may be secret in each address in it left out: user and password, the
    query, the fragment."""
    return re.sub(
        r"[a-z][a-z0-9+.-]*://[^\s'\"]+", lambda m: _shown(m[0]), text, flags=re.IGNORECASE
    )


def _network(url: str) -> Address:
    shown = _shown(url)
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{shown}: not an address") from error
    if not host and parts.scheme.lower() not in {"udp", "rtp", "srt", "tcp"}:
        raise ConfigError(f"{shown}: the address names no host")
    path = _UNSAFE.sub("-", f"{host or parts.scheme}{parts.path}").strip("-.")
    web = parts.scheme.lower() in {"http", "https"}
    recorded = web and PurePosixPath(parts.path).suffix.lower() in _RECORDED
    kind = Kind.RECORDING if recorded else Kind.NETWORK
    return Address(kind, url, shown, path or "camera")


def _shown(url: str) -> str:
    scheme, _, rest = url.partition("://")
    # The last @ before the path ends the user part; a password may hold any of /?# unencoded.
    before, at, after = rest.rpartition("@")
    if at and not _plain_path(before):
        rest, credentials = after, "***@"
    else:
        credentials = ""
    cut = re.split(r"[?#]", rest, maxsplit=1)
    return f"{scheme}://{credentials}{cut[0]}{'?...' if len(cut) > 1 else ''}"


def _plain_path(before: str) -> bool:
    """Whether what stands before an @ is host and path, so that the @ belongs to the path."""
    return "/" in before and ":" not in before.split("/", 1)[0]


def _value(name: str, environment: Mapping[str, str]) -> str:
    value = environment.get(name)
    if value is None:
        raise ConfigError(f"${{{name}}}: the environment has no variable of this name")
    return quote(value, safe="")
