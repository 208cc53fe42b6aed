"""Where the bytes of a claim lie: URIs in one normal form, so that a prefix can be compared.

A URI comes from a producer and decides what this worker opens, so whatever two readers might
understand differently is refused rather than mended: dot segments in any disguise, user names,
encoded slashes and percent signs, backslashes, odd spellings of IP addresses. The grammar is that
of RFC 3986, narrowed.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from schemas.errors import FrameloomError

MAX_URI_CHARS = 2048
WEB_PORTS = {"http": 80, "https": 443}
"""Schemes that go to a host by HTTP, and their usual ports."""
FILE = "file"
OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "memory"}
)  # fmt: skip
"""Schemes that fsspec opens, none of which can reach this machine's files or a host that the URI
names. `memory` holds only what the process itself put there; tests use it."""

_CHARACTERS = re.compile(r"[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+")
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})?")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMERIC = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_STORE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PORT = re.compile(r"[0-9]{1,5}")


class UriError(FrameloomError):
    """The URI is none that is opened here. The message is a phrase that says why."""


@dataclass(frozen=True, slots=True)
class Location:
    """A URI in normal form.

    Attributes:
        scheme: lower case.
        authority: host (lower case, an IPv6 address without its brackets), bucket, or "" for files.
        port: of a host; None for files and buckets.
        path: begins with "/"; escapes of unreserved characters are undone, the others upper case.
        query: as it came, without its "?"; "" where there is none. Only hosts have one.
    """

    scheme: str
    authority: str
    port: int | None
    path: str
    query: str = ""

    @property
    def is_web(self) -> bool:
        """Whether it is fetched by HTTP."""
        return self.scheme in WEB_PORTS

    @property
    def plain_path(self) -> str:
        """The path with every escape undone: a file's name, an object's key."""
        return unquote_to_bytes(self.path).decode()

    @property
    def uri(self) -> str:
        """The normal form, without the query (which may hold a signature): for messages."""
        host = f"[{self.authority}]" if ":" in self.authority else self.authority
        usual = self.port in (None, WEB_PORTS.get(self.scheme))
        return f"{self.scheme}://{host}{'' if usual else f':{self.port}'}{self.path}"

    @property
    def target(self) -> str:
        """What is asked of the host: path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def covers(self, other: Location) -> bool:
        """Whether `other` is this very place or lies below it. Whole path segments count, so that
        neither `/pics2` nor the host `pics.example.evil` is below `pics`."""
        if (self.scheme, self.authority, self.port) != (other.scheme, other.authority, other.port):
            return False
        above = self.path.rstrip("/")
        return other.path == above or other.path.startswith(f"{above}/")


def parse_uri(uri: str) -> Location:
    """The normal form of an absolute URI.

    Raises:
        UriError: it is malformed, ambiguous or of a scheme that is not opened here.
    """
    if not 0 < len(uri) <= MAX_URI_CHARS:
        raise UriError(f"has {len(uri)} characters, 1 to {MAX_URI_CHARS} are taken")
    if not _CHARACTERS.fullmatch(uri):
        raise UriError("has characters that a URI must escape")
    parts = _PARTS.fullmatch(uri)
    if parts is None:
        raise UriError("is not scheme://…")
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3], parts[4] or ""
    if parts[5] is not None:
        raise UriError("has a fragment")
    path = _path(path or "/")
    if scheme in WEB_PORTS:
        host, port = _host_and_port(authority, WEB_PORTS[scheme])
        return Location(scheme, host, port, path, query)
    if query:
        raise UriError(f"has a query, which {scheme} does not know")
    if scheme == FILE:
        if authority:
            raise UriError("names a host: a file's URI begins with file:///")
        return Location(scheme, "", None, path)
    if scheme not in OBJECT_STORES:
        raise UriError(f"has the scheme {scheme}, which is not opened here")
    if not _STORE.fullmatch(authority) or ".." in authority:
        raise UriError("names no bucket")
    return Location(scheme, authority, None, path)


def parse_prefix(text: str) -> Location:
    """A prefix that a setting allows.

    Raises:
        UriError: no URI, or one that allows too much, or has a query.
    """
    location = parse_uri(text)
    if location.query:
        raise UriError("has a query: any query is allowed below a prefix")
    if location.scheme == FILE and location.path == "/":
        raise UriError("allows every file of this machine: name a folder")
    return location


def _host_and_port(authority: str, usual: int) -> tuple[str, int]:
    if "@" in authority:
        raise UriError("has a user name before its host")
    if "%" in authority:
        raise UriError("has an escape in its host")
    host, colon, port_text = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port_text = authority, str(usual)
    if not _PORT.fullmatch(port_text) or not 1 <= int(port_text) <= 65_535:
        raise UriError("has a port that is none")
    return _host(host.lower()), int(port_text)


def _host(host: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError as error:
            raise UriError("has a host that is no IPv6 address") from error
    if len(host) > 253 or not _HOST.fullmatch(host):
        raise UriError("has a host that is no name")
    if _NUMERIC.fullmatch(host.rpartition(".")[2]):
        # Resolvers also take 2130706433, 0x7f.1 and 0177.0.0.1; nobody has to write them so.
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as error:
            raise UriError("has a host that is no plain IPv4 address") from error
    return host


def _path(path: str) -> str:
    return "/".join(_segment(segment) for segment in path.split("/"))


def _segment(segment: str) -> str:
    if any(escape[1] is None for escape in _ESCAPE.finditer(segment)):
        raise UriError("has a percent sign that escapes nothing")
    try:
        plain = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise UriError("has escapes that are not UTF-8") from error
    # Compatibility forms (full-width dots and slashes) are what some readers make them.
    folded = unicodedata.normalize("NFKC", plain)
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in plain):
        raise UriError("has a control character in its path")
    if any(character in folded for character in "/\\%"):
        raise UriError("has an escaped slash, backslash or percent sign in its path")
    if folded.partition(";")[0] in {".", ".."}:
        raise UriError("has a dot segment in its path")
    return _ESCAPE.sub(_normal_escape, segment)


def _normal_escape(escape: re.Match[str]) -> str:
    byte = int(escape[1], 16)
    return chr(byte) if byte in _UNRESERVED else escape[0].upper()
