"""Which addresses are fetched from."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.addresses import METADATA, address_fault


def nets(*texts: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(text) for text in texts]


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"],
)
def test_public_ones_are(address: str) -> None:
    assert address_fault(address, []) is None


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.9.1", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 (judged, not bound)
        ("::", "unspecified"),
        ("10.0.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("fd12::1", "private"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%2", "link-local"),
        ("100.64.0.1", "not public"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "private"),
        ("240.0.0.1", "private"),
        ("169.254.169.254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("64:ff9b::169.254.169.254", "metadata"),
        ("64:ff9b::10.0.0.1", "private"),
        ("2002:7f00:1::", "loopback"),
        ("::127.0.0.1", ""),
        ("fec0::1", ""),
        ("localhost", "no IP address"),
        ("", "no IP address"),
    ],
)  # fmt: skip
def test_others_are_refused_by_name(address: str, kind: str) -> None:
    fault = address_fault(address, [])
    assert fault is not None
    assert kind in fault


def test_a_network_that_is_allowed_opens_itself_and_nothing_else() -> None:
    allowed = nets("10.1.0.0/16", "fd12::/16")
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd12::9"):
        assert address_fault(address, allowed) is None
    for address in ("10.2.0.1", "127.0.0.1", "fd13::1"):
        assert address_fault(address, allowed) is not None


def test_a_metadata_address_must_be_named_itself() -> None:
    everything = nets("0.0.0.0/0", "::/0")
    for address in METADATA:
        assert address_fault(str(address), everything) is not None
        assert address_fault(str(address), nets(str(address))) is None


def test_multicast_and_unspecified_cannot_be_opened() -> None:
    for address in ("224.0.0.1", "ff02::1", "0.0.0.0", "::"):  # noqa: S104 (judged, not bound)
        assert address_fault(address, nets("0.0.0.0/0", "::/0", "224.0.0.1", "ff02::1")) is not None


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_judged_as_itself(inner: ipaddress.IPv4Address) -> None:
    bare = address_fault(str(inner), [])
    for prefix in ("::ffff:", "64:ff9b::"):
        assert (address_fault(f"{prefix}{inner}", []) is None) == (bare is None)
    if bare is not None:
        assert address_fault(str(ipaddress.IPv6Address(0x2002 << 112 | int(inner) << 80)), [])
