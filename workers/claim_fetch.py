"""One claim → its bytes: the right store, one budget of time, further attempts where they help."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from pipeline.claim_rules import ClaimRules, fault
from pipeline.ports import Clock
from pipeline.retry import Backoff
from schemas.claim_uri import FILE, Location
from schemas.errors import ConfigError, Reason, TransientError
from schemas.frame import Claim
from schemas.settings import ClaimCheckSettings
from workers.claim_files import read_file, read_object
from workers.claim_http import ClaimHttp, Resolve, resolver
from workers.claim_threads import ClaimThreads

BACKOFF = Backoff(first_s=0.2, longest_s=2.0, random=random.random)


def claim_rules(settings: ClaimCheckSettings) -> ClaimRules:
    """What these settings allow: nothing while claims are off."""
    if not settings.enabled:
        return ClaimRules()
    return ClaimRules.of(settings.allowed_prefixes, settings.max_bytes)


class ClaimFetcher:
    """Fetches what the rules allow. Belongs to the event loop's thread.

    Args:
        settings: of `claim_check`.
        rules: as `claim_rules` makes them.
        clock: monotonic seconds.
        resolve: a host's addresses; None for the system's resolver.

    Raises:
        ConfigError: `claim_check.ssl_cafile` cannot be used.
    """

    def __init__(
        self,
        settings: ClaimCheckSettings,
        rules: ClaimRules,
        *,
        clock: Clock,
        resolve: Resolve | None = None,
    ) -> None:
        self._rules = rules
        self._timeout_s = settings.timeout_ms / 1e3
        self._retries = settings.retries
        self._clock = clock
        self._threads = ClaimThreads(settings.concurrency)
        self._http: ClaimHttp | None = None
        if any(prefix.is_web for prefix in rules.prefixes):
            self._http = ClaimHttp(
                rules,
                [ipaddress.ip_network(network) for network in settings.allowed_networks],
                resolve or resolver(self._threads),
                connections=settings.concurrency,
                ssl_context=_ssl_context(settings.ssl_cafile),
            )

    async def fetch(
        self, claim: Claim, turn: Callable[[], AbstractAsyncContextManager[None]]
    ) -> memoryview:
        """The claim's bytes.

        Args:
            turn: its context is entered for each attempt, and left for the pause after it.
                Waiting for it takes nothing from the budget.

        Raises:
            PoisonError: any of the `claim_…` reasons.
        """
        location = self._rules.check(claim)
        left_s, failures = self._timeout_s, 0
        while True:
            async with turn():
                begun_at = self._clock()
                try:
                    async with asyncio.timeout(left_s):
                        return await self._read(location, claim, left_s)
                except TransientError as error:
                    failures += 1
                    if failures > self._retries:
                        raise fault(
                            Reason.CLAIM_FAILED, f"{failures} attempts, the last: {error}"
                        ) from error
                except TimeoutError as error:
                    raise fault(Reason.CLAIM_TIMEOUT, self._too_slow(location)) from error
            left_s -= self._clock() - begun_at
            if left_s <= 0:
                raise fault(Reason.CLAIM_TIMEOUT, self._too_slow(location))
            await asyncio.sleep(BACKOFF.pause_s(failures))

    async def close(self) -> None:
        """Close every connection."""
        if self._http is not None:
            await self._http.close()

    async def _read(self, location: Location, claim: Claim, left_s: float) -> memoryview:
        if self._http is not None and location.is_web:
            return await self._http.read(location, claim)
        until_at = time.monotonic() + left_s
        if location.scheme == FILE:
            prefixes = self._rules.prefixes
            return await self._threads.call(lambda: read_file(location, claim, prefixes, until_at))
        return await self._threads.call(lambda: read_object(location, claim, until_at))

    def _too_slow(self, location: Location) -> str:
        limit_ms = round(self._timeout_s * 1e3)
        return f"{location.uri} took longer than claim_check.timeout_ms ({limit_ms})"


def _ssl_context(cafile: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"claim_check.ssl_cafile = {cafile!r}: {why}") from error
