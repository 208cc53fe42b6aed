"""What `frameloom produce` shows: a line per stream while it runs, and what became of all."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from frameloom.console import err, out, print_json, printable
from frameloom.open_sources import AnySource
from frameloom.produce import produce
from frameloom.sender import ProduceOptions
from frameloom.tally import Drop, StreamTally, Tally
from schemas.settings import KafkaSettings

_WORDS = {
    Drop.SLOW_BROKER: "slow broker",
    Drop.BROKER_AWAY: "broker away",
    Drop.ADAPTIVE: "left out by --adaptive",
    Drop.FPS: "left out by --fps",
    Drop.DAMAGED: "damaged",
    Drop.NO_KEY_FRAME: "before a key frame",
    Drop.STOPPED: "not sent yet at the stop",
}


async def with_progress(
    kafka: KafkaSettings,
    streams: dict[str, list[AnySource]],
    options: ProduceOptions,
    tally: Tally,
) -> None:
    """Produce, with a line per stream on standard error.

    Raises:
        ConfigError, TransientError: see `produce`.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}", markup=False),
    )
    with Progress(*columns, console=err) as progress:
        tasks: dict[str, TaskID] = {
            stream: progress.add_task(printable(stream), total=_total(sources, options), now="")
            for stream, sources in streams.items()
        }

        def on_progress(stream: str) -> None:
            progress.update(tasks[stream], advance=1, now=_now(tally.of(stream)))

        def on_note(stream: str, note: str) -> None:
            progress.update(tasks[stream], now=_now(tally.of(stream)))
            err.print(printable(f"{stream}: {note}"), markup=False, soft_wrap=True)

        await produce(kafka, streams, options, tally, on_progress, on_note)


def conclude(tally: Tally, *, json: bool) -> None:
    """Say what was sent, dropped and why."""
    for name, why in tally.failures.items():
        err.print(f"{name}: {why}", style="red", markup=False, soft_wrap=True)
    unnamed = tally.failed - len(tally.failures)
    if unnamed > 0:
        err.print(f"... and {unnamed} more", style="red")
    if json:
        print_json(tally)
    else:
        out.print(final_line(tally), soft_wrap=True)


def final_line(tally: Tally) -> str:
    """The run in one line."""
    megabytes = f"({tally.sent_bytes / 1e6:.1f} MB)"
    if tally.sent_frames == tally.sent:
        sent = f"sent {tally.sent} frames {megabytes}"
    else:
        sent = f"sent {tally.sent_frames} frames in {tally.sent} records {megabytes}"
    parts = [sent, f"failed {tally.failed}"]
    if tally.dropped:
        reasons = sorted(tally.dropped.items(), key=lambda item: -item[1])
        why = ", ".join(f"{_WORDS[reason]} {frames}" for reason, frames in reasons)
        parts.append(f"dropped {sum(tally.dropped.values())} ({why})")
    if tally.reconnects:
        times = "once" if tally.reconnects == 1 else f"{tally.reconnects} times"
        parts.append(f"reconnected {times}")
    return ", ".join(parts)


def _now(tally: StreamTally) -> str:
    """A stream's state beside its bar; nothing for files that go as they should."""
    parts = [tally.state] if tally.state else []
    dropped = sum(tally.dropped.values())
    if dropped:
        parts.append(f"dropped {dropped}")
    if tally.state and tally.quality:
        parts.append(f"quality {tally.quality}")
    return ", ".join(parts)


def _total(sources: list[AnySource], options: ProduceOptions) -> int | None:
    """Records to expect of a stream, or None where only the end will tell."""
    totals = [source.total for source in sources]
    known = sum(total for total in totals if total is not None)
    if options.loop or None in totals:
        return options.count
    return known if options.count is None else min(known, options.count)
