"""What settings alone can tell: that they can be read, and time-outs that work against each other.

What makes them impossible is refused when they are read; this is what works and should not be so.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from frameloom.doctor_finding import Finding, State, ok, problem, warning
from schemas.claim_uri import FILE, Location, parse_prefix
from schemas.errors import ConfigError
from schemas.settings import ClaimCheckSettings, Settings

STORE_PACKAGES = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
    "abfss": "adlfs", "oss": "ossfs",
}  # fmt: skip
"""Scheme of an object store → the package through which fsspec opens it."""


def unreadable(error: ConfigError) -> Iterator[Finding]:
    """Each thing that is wrong with the settings, as their reader says it."""
    for line in str(error).splitlines():
        yield problem("configuration", line, "mend the place named; configs/default.yaml explains")


def configuration(settings: Settings) -> Iterator[Finding]:
    """They can be read; and what in them works against itself."""
    routes = ", ".join(route.name for route in settings.routes)
    yield ok("configuration", f"every key is known and every value possible; routes: {routes}")
    yield from _timeouts(settings)
    yield from _claims(settings.claim_check)


def _timeouts(settings: Settings) -> Iterator[Finding]:
    found = list(_time_faults(settings))
    yield from found or [ok("timeouts", "session, poll, drain, revoke and stall fit each other")]


def _time_faults(settings: Settings) -> Iterator[Finding]:
    kafka, lifecycle, delivery = settings.kafka, settings.lifecycle, settings.delivery
    stall = lifecycle.stall_timeout_ms
    if 2 * settings.device.stage_timeout_ms > stall:
        yield warning(
            "timeouts",
            f"device.stage_timeout_ms ({settings.device.stage_timeout_ms}) is more than half of "
            f"lifecycle.stall_timeout_ms ({stall}): a call that hangs may be taken for a stall, "
            "and its record not found out",
            f"set device.stage_timeout_ms to at most {stall // 2}",
        )
    if delivery.produce_timeout_ms >= stall:
        yield warning(
            "timeouts",
            f"delivery.produce_timeout_ms ({delivery.produce_timeout_ms}) is not below "
            f"lifecycle.stall_timeout_ms ({stall}): the worker ends before it sends again",
            f"set delivery.produce_timeout_ms below {stall}",
        )
    if kafka.max_poll_interval_ms < kafka.rebalance_timeout_ms:
        yield warning(
            "timeouts",
            f"kafka.max_poll_interval_ms ({kafka.max_poll_interval_ms}) is below "
            f"kafka.rebalance_timeout_ms ({kafka.rebalance_timeout_ms}): a worker that settles "
            "during a rebalance can be dropped for not polling",
            f"set kafka.max_poll_interval_ms to at least {kafka.rebalance_timeout_ms}",
        )


def _claims(claims: ClaimCheckSettings) -> Iterator[Finding]:
    if not claims.enabled:
        return
    found = [each for text in claims.allowed_prefixes for each in _prefix(parse_prefix(text))]
    if all(each.state is State.OK for each in found):
        yield ok("claim_check", f"on, for {', '.join(claims.allowed_prefixes)}")
    else:
        yield from found


def _prefix(prefix: Location) -> Iterator[Finding]:
    if prefix.scheme == "http":
        yield warning(
            "claim_check",
            f"{prefix.uri} is not encrypted: who listens sees the pictures",
            "use https where the store has it",
        )
    elif prefix.scheme == FILE and not os.access(Path(prefix.plain_path), os.R_OK | os.X_OK):
        yield warning(
            "claim_check",
            f"{prefix.uri} is not there, or this user may not read it",
            f"mount or create {prefix.plain_path}, and give uid {os.getuid()} read access",
        )
    elif (package := STORE_PACKAGES.get(prefix.scheme)) and not importlib.util.find_spec(package):
        yield problem(
            "claim_check",
            f"{prefix.uri} needs the package {package}, which is not installed",
            f"pip install {package}",
        )
    else:
        yield ok("claim_check", prefix.uri)
