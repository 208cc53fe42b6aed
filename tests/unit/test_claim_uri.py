"""URIs of claims: one normal form, and every disguise refused."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.claim_uri import MAX_URI_CHARS, UriError, parse_prefix, parse_uri

PREFIX = parse_prefix("https://store.example/frames/")

INSIDE = [
    "https://store.example/frames/a.jpg",
    "https://STORE.example:443/frames/a.jpg",
    "HTTPS://store.example/frames/a/b/c.jpg?X-Signature=a%2Fb&e=1",
    "https://store.example/%66rames/a.jpg",
    "https://store.example/frames/",
    "https://store.example/frames",
    "https://store.example/frames/a%20b.jpg",
    "https://store.example/frames/..a/...",
]

OUTSIDE = [
    "http://store.example/frames/a.jpg",
    "https://store.example:8443/frames/a.jpg",
    "https://store.example.evil/frames/a.jpg",
    "https://evil.store.example/frames/a.jpg",
    "https://store.example/frames2/a.jpg",
    "https://store.example/Frames/a.jpg",
    "https://store.example/frame",
    "https://store.example//frames/a.jpg",
    "https://store.example/",
    "s3://store.example/frames/a.jpg",
]

REFUSED = {
    "": "characters",
    "h" * (MAX_URI_CHARS + 1): "characters",
    "frames/a.jpg": "scheme",
    "//store.example/frames/a.jpg": "scheme",
    "https:/store.example/frames/a.jpg": "scheme",
    "https:store.example/frames/a.jpg": "scheme",
    "https://store.example/frames/../secret": "dot segment",
    "https://store.example/frames/%2e%2e/secret": "dot segment",
    "https://store.example/frames/.%2E/secret": "dot segment",
    "https://store.example/frames/./a": "dot segment",
    "https://store.example/frames/..;x=1/secret": "dot segment",
    "https://store.example/frames/%EF%BC%8E%EF%BC%8E/secret": "dot segment",
    "https://store.example/frames/%252e%252e/secret": "percent sign",
    "https://store.example/frames/..%2fsecret": "escaped slash",
    "https://store.example/frames/..%5Csecret": "backslash",
    "https://store.example/frames/%EF%BC%8Fsecret": "escaped slash",
    "https://store.example/frames\\..\\secret": "must escape",
    "https://store.example/frames/a%0d%0aX: y": "must escape",
    "https://store.example/frames/a%0d%0aX": "control character",
    "https://store.example/frames/a%00.jpg": "control character",
    "https://store.example/frames/a\n.jpg": "must escape",
    " https://store.example/frames/a.jpg": "must escape",
    "https://store.example/frames/\N{FULLWIDTH FULL STOP}": "must escape",
    "https://store.example/frames/%zz": "escapes nothing",
    "https://store.example/frames/%2": "escapes nothing",
    "https://store.example/frames/%ff": "not UTF-8",
    "https://store.example/frames/%c0%ae%c0%ae/x": "not UTF-8",
    "https://store.example@evil.example/frames/a.jpg": "user name",
    "https://store.example:443@evil.example/frames/a.jpg": "user name",
    "https://store.example%40evil.example/frames/a.jpg": "escape in its host",
    "https://evil.example#@store.example/frames/": "fragment",
    "https://store.example/frames/a.jpg#x": "fragment",
    "https://store.example./frames/a.jpg": "host",
    "https://store..example/frames/a.jpg": "host",
    "https:///frames/a.jpg": "host",
    "https://store.example:/frames/a.jpg": "port",
    "https://store.example:0/frames/a.jpg": "port",
    "https://store.example:65536/frames/a.jpg": "port",
    "https://store.example:+1/frames/a.jpg": "port",
    "http://2130706433/": "IPv4",
    "http://127.1/": "IPv4",
    "http://0x7f.0.0.1/": "IPv4",
    "http://0177.0.0.1/": "IPv4",
    "http://127.0.0.0x1/": "IPv4",
    "http://[::1%25eth0]/": "escape in its host",
    "http://[v1.x]/": "IPv6",
    "http://[::1/": "host",
    "http://::1/": "host",
    "file://host/etc/passwd": "names a host",
    "file:///srv/frames/a.jpg?x": "query",
    "file:///srv/%2e%2e/etc/passwd": "dot segment",
    "s3:///key": "bucket",
    "s3://bucket/key?versionId=1": "query",
    "s3://user@bucket/key": "bucket",
    "local:///etc/passwd": "scheme local",
    "simplecache::file:///etc/passwd": "scheme",
    "zip://x::https://store.example/frames/a.zip": "scheme zip",
    "data://x/y": "scheme data",
    "ftp://store.example/frames/a.jpg": "scheme ftp",
}


@pytest.mark.parametrize("uri", INSIDE)
def test_what_is_below_a_prefix(uri: str) -> None:
    assert PREFIX.covers(parse_uri(uri))


@pytest.mark.parametrize("uri", OUTSIDE)
def test_what_only_looks_like_it(uri: str) -> None:
    assert not PREFIX.covers(parse_uri(uri))


@pytest.mark.parametrize(("uri", "why"), REFUSED.items())
def test_what_is_ambiguous_is_refused(uri: str, why: str) -> None:
    with pytest.raises(UriError, match=re.escape(why)):
        parse_uri(uri)


def test_the_normal_form() -> None:
    place = parse_uri("HTTPS://Store.Example:8443/a%2db/%c3%a4%3f?q=%2e#"[:-1])
    assert (place.scheme, place.authority, place.port) == ("https", "store.example", 8443)
    assert (place.path, place.query, place.target) == (
        "/a-b/%C3%A4%3F",
        "q=%2e",
        "/a-b/%C3%A4%3F?q=%2e",
    )
    assert place.uri == "https://store.example:8443/a-b/%C3%A4%3F"
    assert place.plain_path == "/a-b/ä?"
    assert parse_uri("http://[0:0::1]/x").uri == "http://[::1]/x"
    assert parse_uri("s3://Bucket/k").uri == "s3://Bucket/k"
    assert parse_uri("http://h").path == "/"


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("https://h/a?b", "query"),
        ("file:///", "every file"),
        ("https://h/a/../b", "dot segment"),
        ("*", "scheme"),
    ],
)
def test_a_prefix_that_allows_too_much(prefix: str, why: str) -> None:
    with pytest.raises(UriError, match=why):
        parse_prefix(prefix)


_PIECES = st.sampled_from(
    [*"/.:;@%#?\\[]ax0", "..", "%2e", "%2f", "%5c", "%25", "https://", "store.example", "frames/",
     "%00", "\t", "．", "127.0.0.1"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=14).map("".join))
def test_whatever_is_taken_reads_the_same_to_other_readers(tail: str) -> None:
    """Fuzz: what is below the prefix here is below it for the standard library's reader, and for
    one that unescapes and resolves dot segments as it likes."""
    for uri in (tail, f"https://store.example{tail}", f"https://store.example/frames/{tail}"):
        try:
            place = parse_uri(uri)
        except UriError:
            continue
        assert parse_uri(uri.replace("HTTPS", "https")) == place
        if place.is_web:
            target = f"{place.uri}?{place.query}" if place.query else place.uri
            assert parse_uri(target) == place, "the normal form is its own"
        if not PREFIX.covers(place):
            continue
        other = urlsplit(uri)
        assert (other.hostname, other.port or 443) == ("store.example", 443)
        assert other.username is None
        segments = place.plain_path.split("/")
        assert segments[1] == "frames"
        assert not {".", ".."} & set(segments)


@given(st.text(max_size=40))
def test_any_text_is_a_place_or_is_refused(text: str) -> None:
    with suppress(UriError):
        parse_uri(text)
