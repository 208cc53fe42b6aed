"""Which dead letters: options that `frameloom dlq`'s commands share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from frameloom.dlq import LetterFilter
    from schemas.settings import Settings

LettersOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="A dead-letter topic; those of all routes without."),
]
ReasonOption = Annotated[str | None, typer.Option(help="Only this reason code.")]
StreamOption = Annotated[str | None, typer.Option(metavar="ID", help="Only this stream (key).")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        metavar="T", help="Only from then on: so long ago (90s, 15min, 2h, 7d) or ISO 8601, UTC."
    ),
]
UntilOption = Annotated[str | None, typer.Option(metavar="T", help="Only before then.")]


def letter_topics(settings: Settings, named: list[str] | None) -> list[str]:
    """The dead-letter topics to read."""
    return named or sorted({route.dead_letter for route in settings.routes})


def letter_filter(
    *,
    reason: str | None,
    stream: str | None,
    since: str | None,
    until: str | None,
    source: str | None = None,
) -> LetterFilter:
    """What the options ask for. Raises ConfigError where they make no sense."""
    from frameloom.dlq import LetterFilter, parse_coordinates
    from frameloom.instants import parse_instant
    from schemas.errors import Reason

    if reason is not None and reason not in set(Reason):
        raise ConfigError(f"--reason {reason}: known are {', '.join(Reason)}")
    if source is not None:
        parse_coordinates(source)
    now_us = time.time_ns() // 1000
    return LetterFilter(
        reason=reason,
        stream=stream,
        since_us=None if since is None else parse_instant(since, now_us),
        until_us=None if until is None else parse_instant(until, now_us),
        source=source,
    )
