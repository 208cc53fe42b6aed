"""`frameloom dlq replay`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from frameloom.cli_dlq_options import (
    LettersOption,
    ReasonOption,
    SinceOption,
    StreamOption,
    UntilOption,
    letter_filter,
    letter_topics,
)
from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.console import EXIT_FAILED, err, out, print_json, printable, run, settings_of

if TYPE_CHECKING:
    from frameloom.dlq_replay import Replay, ReplayPlan


def replay(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    topic: LettersOption = None,
    reason: ReasonOption = None,
    stream: StreamOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="T/P/O", help="Only the record that was there (its fl-source)."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing; say what would be sent.")
    ] = False,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="There instead of the original topics.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Send dead letters back to where they came from, attempts kept.

    Dead letters stay where they are: replaying twice sends twice.
    """
    wanted = letter_filter(reason=reason, stream=stream, since=since, until=until, source=source)
    settings = settings_of(config, bootstrap)
    from frameloom.dlq_replay import ReplayPlan

    tally = _Tally(json=json, dry_run=dry_run)
    plan = ReplayPlan(
        kafka=settings.kafka,
        topics=letter_topics(settings, topic),
        wanted=wanted,
        to=to,
        limit=limit,
        dry_run=dry_run,
        max_record_bytes=settings.limits.max_record_bytes,
    )
    try:
        run(_replay(plan, tally))
    finally:
        # Also when the broker goes away half-way: what was sent was sent.
        tally.close()
    missing = source is not None and not tally.done and not tally.failed
    if missing:
        err.print(f"no dead letter that is chosen comes from {source}", style="red", markup=False)
    if tally.failed or missing:
        raise typer.Exit(EXIT_FAILED)


async def _replay(plan: ReplayPlan, tally: _Tally) -> None:
    from contextlib import aclosing

    from frameloom.dlq_replay import replay as replay_

    async with aclosing(replay_(plan)) as replays:
        async for each in replays:
            tally.show(each)


class _Tally:
    """Prints each letter's fate and counts them."""

    def __init__(self, *, json: bool, dry_run: bool) -> None:
        self._json = json
        self._dry_run = dry_run
        self.done = 0
        self.failed = 0

    def show(self, each: Replay) -> None:
        letter = each.letter
        where = f"{letter.topic}/{letter.partition}/{letter.offset}"
        if each.failure:
            self.failed += 1
        else:
            self.done += 1
        if self._json:
            print_json(
                {
                    "letter": where,
                    "source": letter.source,
                    "stream": letter.key,
                    "reason": letter.reason,
                    "attempts": letter.attempts,
                    "target": each.target or None,
                    "failure": each.failure or None,
                    "dry_run": self._dry_run,
                }
            )
            return
        fate = f"not sent: {each.failure}" if each.failure else f"-> {each.target}"
        line = printable(f"{where}  {letter.key}  {letter.reason}  {fate}")
        out.print(line, style="red" if each.failure else None, markup=False, soft_wrap=True)

    def close(self) -> None:
        verb = "would be replayed" if self._dry_run else "replayed"
        err.print(f"{self.done} {verb}, {self.failed} failed")
