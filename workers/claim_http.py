"""Claims by HTTP, from hosts that nobody here chose.

httpcore is the client because it does only what it is told: it follows no redirect, unpacks no
body, reads no proxy from the environment, and takes a network backend. So the host's name is looked
up here, every address it has is judged, and the connection goes to one of those that were judged:
a second look-up that could answer otherwise does not happen. TLS still checks the name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import cast

import httpcore

from pipeline.addresses import Network, address_fault
from pipeline.claim_rules import ClaimRules, fault
from schemas.claim_uri import WEB_PORTS, Location
from schemas.errors import Reason, TransientError
from schemas.frame import Claim
from workers.claim_bytes import ClaimBytes
from workers.claim_threads import ClaimThreads

MAX_REDIRECTS = 3
KEEP_ALIVE_S = 15.0
"""An idle connection is closed after this: then the name is looked up anew."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""A host's addresses. Raises OSError."""

_HEADERS = (("accept", "*/*"), ("accept-encoding", "identity"), ("user-agent", "frameloom"))
_PASSING = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


def resolver(threads: ClaimThreads) -> Resolve:
    """The system's resolver, on threads that may hang."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = await threads.call(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    return resolve


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to addresses that may be connected to."""

    def __init__(self, allowed: Sequence[Network], resolve: Resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the library's own)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise TransientError(f"{host} cannot be looked up: {error.strerror}") from error
        # One that is refused spoils the others: who mixes them is not to be trusted.
        for address in addresses:
            if (why := address_fault(address, self._allowed)) is not None:
                raise fault(
                    Reason.CLAIM_REFUSED,
                    f"{host}: {why}, and not in claim_check.allowed_networks",
                )
        failed: Exception = TransientError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class ClaimHttp:
    """Fetches by GET over HTTP/1.1. Belongs to the event loop's thread.

    Args:
        rules: a redirect stays within them.
        allowed: see `pipeline.addresses.address_fault`.
        resolve: a host's addresses.
        connections: most at once.
        ssl_context: what a host's certificate is checked with.
    """

    def __init__(
        self,
        rules: ClaimRules,
        allowed: Sequence[Network],
        resolve: Resolve,
        *,
        connections: int,
        ssl_context: ssl.SSLContext,
    ) -> None:
        self._rules = rules
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context,
            max_connections=connections,
            keepalive_expiry=KEEP_ALIVE_S,
            network_backend=_Backend(allowed, resolve),
        )

    async def read(self, location: Location, claim: Claim) -> memoryview:
        """The claim's bytes, once they are all there and right. Has no deadline of its own.

        Raises:
            PoisonError: CLAIM_REFUSED, CLAIM_MISSING or CLAIM_MISMATCH.
            TransientError: no connection, a transfer cut short, or the host asks for patience.
        """
        for _ in range(1 + MAX_REDIRECTS):
            try:
                got = await self._get(location, claim)
            except (
                httpcore.NetworkError,
                httpcore.ProtocolError,
                httpcore.TimeoutException,
            ) as error:
                why = str(error) or type(error).__name__
                raise TransientError(f"{location.uri}: {why}") from error
            if isinstance(got, memoryview):
                return got
            location = got
        raise fault(Reason.CLAIM_REFUSED, f"more than {MAX_REDIRECTS} redirects")

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.aclose()

    async def _get(self, location: Location, claim: Claim) -> memoryview | Location:
        """The bytes, or where they are said to be."""
        url = httpcore.URL(
            scheme=location.scheme,
            host=location.authority,
            port=location.port,
            target=location.target,
        )
        headers = [("host", _host(location)), *_HEADERS]
        async with self._pool.stream("GET", url, headers=headers) as response:
            # What is not read of a body is dropped with its connection.
            if response.status in _REDIRECTS:
                return self._rules.follow(location, _header(response, b"location"))
            _check_status(response.status, location)
            collected = ClaimBytes(claim)
            length = _header(response, b"content-length")
            if length.isdigit():
                collected.expect(int(length[:20]))
            async for chunk in response.aiter_stream():
                collected.add(chunk)
                # A body that is always there already would keep the loop to itself.
                await asyncio.sleep(0)
            return collected.whole()


def _check_status(status: int, location: Location) -> None:
    if status == HTTPStatus.OK:
        return
    why = f"{location.uri} answers {status}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING:
        raise TransientError(why)
    raise fault(Reason.CLAIM_MISSING, why)


def _header(response: httpcore.Response, name: bytes) -> str:
    found = [value for key, value in response.headers if key.lower() == name]
    return found[0].decode("ascii", "replace") if found else ""


def _host(location: Location) -> str:
    host = f"[{location.authority}]" if ":" in location.authority else location.authority
    return host if location.port == WEB_PORTS[location.scheme] else f"{host}:{location.port}"
