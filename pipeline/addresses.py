"""Which IP addresses a claim may be fetched from.

A producer names a host, and a name may stand for any address: this machine, its neighbours, or the
service that hands out a cloud machine's credentials. So the address itself is judged. Ranges that
the registries call not globally reachable are refused (RFC 6890 and its successors), and those
that carry an IPv4 address inside an IPv6 one are judged by both.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA: frozenset[Address] = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192",
            "fd00:ec2::254",
        ),
    )
)  # fmt: skip
"""Where clouds answer for a machine's identity. Some lie in ranges that are private or public
otherwise, so a wider network that is allowed does not open them."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_LOW_BITS = 0xFFFF_FFFF


def address_fault(address: str, allowed: Sequence[Network]) -> str | None:
    """Why nothing is fetched from the address, in one phrase, or None when it may be.

    Args:
        address: as a resolver gives it.
        allowed: networks that are opened although they are not public.
    """
    try:
        outer = ipaddress.ip_address(address)
    except ValueError:
        return f"{address!r} is no IP address"
    for each in _meanings(outer):
        kind = _kind(each)
        if kind is not None and not _allowed(each, allowed):
            return f"{address} is {kind}"
    return None


def _meanings(address: Address) -> Iterator[Address]:
    """Every address that a packet to this one may reach."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None or address in _NAT64:
        # Nothing but another way to write it.
        yield ipaddress.IPv4Address(int(address) & _LOW_BITS)
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _COMPATIBLE and int(address) > 1:
        yield ipaddress.IPv4Address(int(address) & _LOW_BITS)


def _kind(address: Address) -> str | None:
    """What is special about the address, or None for a public one."""
    if address in METADATA:
        return "a cloud's metadata address"
    kinds = (
        ("multicast", address.is_multicast),
        ("unspecified", address.is_unspecified),
        ("loopback", address.is_loopback),
        ("link-local", address.is_link_local),
        ("private", address.is_private or getattr(address, "is_site_local", False)),
        ("reserved", address.is_reserved),
        ("not public", not address.is_global),
    )
    return next((name for name, holds in kinds if holds), None)


def _allowed(address: Address, allowed: Sequence[Network]) -> bool:
    if address.is_multicast or address.is_unspecified:
        return False
    within = [network for network in allowed if address in network]
    if address in METADATA:
        return any(network.num_addresses == 1 for network in within)
    return bool(within)
