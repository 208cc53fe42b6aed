"""What a source argument means, and that nothing shown of it is secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameloom.address import Kind, masked, read_address
from schemas.errors import ConfigError


@pytest.mark.parametrize(
    ("argument", "kind", "name"),
    [
        ("rtsp://gate.example/stream1", Kind.NETWORK, "gate.example-stream1"),
        ("rtsp://10.0.0.5:8554/h264/ch1", Kind.NETWORK, "10.0.0.5-h264-ch1"),
        ("RTSPS://gate/1?token=x", Kind.NETWORK, "gate-1"),
        ("http://gate/video.mjpg", Kind.NETWORK, "gate-video.mjpg"),
        ("https://gate/live/index.m3u8", Kind.NETWORK, "gate-live-index.m3u8"),
        ("https://store/clip.MP4?sig=1", Kind.RECORDING, "store-clip.MP4"),
        ("udp://239.0.0.1:1234", Kind.NETWORK, "239.0.0.1"),
        ("udp://:1234", Kind.NETWORK, "udp"),
        ("webcam:0", Kind.WEBCAM, "webcam-0"),
        ("1", Kind.WEBCAM, "webcam-1"),
        ("/dev/video2", Kind.WEBCAM, "webcam-2"),
        ("-", Kind.LIST, "stdin"),
        ("holiday.mp4", Kind.FILE, "holiday"),
        ("pictures/", Kind.FILE, "pictures"),
    ],
)
def test_kinds_and_names(argument: str, kind: Kind, name: str) -> None:
    address = read_address(argument, {})
    assert (address.kind, address.name) == (kind, name)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rtsp://me:pw@cam/1", "rtsp://***@cam/1"),
        ("rtsp://me@cam/1", "rtsp://***@cam/1"),
        ("rtsp://me:p@w@cam/1", "rtsp://***@cam/1"),
        ("rtsp://me:p/w?#@cam/1", "rtsp://***@cam/1"),
        ("http://cam/a@b.mjpg", "http://cam/a@b.mjpg"),
        ("http://cam/v?user=me&pwd=pw", "http://cam/v?..."),
        ("http://me:pw@cam/v?x=1#y", "http://***@cam/v?..."),
    ],
)
def test_credentials_and_queries_are_not_shown(url: str, shown: str) -> None:
    assert masked(f"cannot open '{url}' now") == f"cannot open '{shown}' now"


SECRET = st.text("abcXYZ019!$%&*+,;=~:/?#[]@-._", min_size=6, max_size=20).map(
    lambda text: "s3c" + text
)


@given(SECRET)
def test_no_password_is_shown_whatever_it_holds(secret: str) -> None:
    url = f"rtsp://viewer:{secret}@gate.example/stream1"
    told = [masked(url)]
    try:
        address = read_address(url, {})
        told += [repr(address), address.shown, address.name]
    except ConfigError as error:
        told.append(str(error))
    assert all(secret not in text for text in told)


def test_variables_stand_for_the_environment_percent_encoded() -> None:
    address = read_address("rtsp://me:${PW}@cam/1", {"PW": "a/b@c"})
    assert address.target == "rtsp://me:a%2Fb%40c@cam/1"
    assert address.shown == "rtsp://***@cam/1"
    with pytest.raises(ConfigError, match=r"\$\{PW\}"):
        read_address("rtsp://me:${PW}@cam/1", {})


@pytest.mark.parametrize("argument", ["gopher://x", "rtsp:///nohost", "rtsp://cam:notaport/1"])
def test_what_is_no_address_is_refused(argument: str) -> None:
    with pytest.raises(ConfigError):
        read_address(argument, {})
