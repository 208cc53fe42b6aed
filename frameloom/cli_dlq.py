"""`frameloom dlq list|show|replay`."""

from __future__ import annotations

from pathlib import Path
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
from frameloom.cli_dlq_replay import replay
from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.console import err, out, print_json, printable, run, settings_of
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from frameloom.dlq import DeadLetter
    from pipeline.item import Coordinates
    from schemas.codec import RawRecord
    from schemas.settings import KafkaSettings

app = typer.Typer(help="Dead letters: records that can never succeed.", no_args_is_help=True)

app.command("replay")(replay)

_DUMP_BYTES = 256


@app.command("list")
def list_(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    topic: LettersOption = None,
    reason: ReasonOption = None,
    stream: StreamOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show the last so many.")] = 100,
    json: JsonOption = False,
) -> None:
    """List dead letters, oldest first."""
    wanted = letter_filter(reason=reason, stream=stream, since=since, until=until)
    settings = settings_of(config, bootstrap)
    letters = run(_read(settings.kafka, letter_topics(settings, topic)))
    chosen = [letter for letter in letters if wanted.admits(letter)]
    shown = chosen[-limit:]
    if json:
        for letter in shown:
            print_json(letter)
    else:
        _print_table(shown)
    err.print(f"{len(shown)} of {len(chosen)} chosen, {len(letters)} in all")


@app.command()
def show(
    *,
    coordinates: Annotated[
        str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `dlq list` prints it.")
    ],
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    value: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Save the record's value there (an envelope, as it is)."
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="Save the picture in it there."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show one dead letter: why, its headers, its first bytes."""
    from frameloom.dlq import (
        hexdump,
        parse_coordinates,
        picture_of,
        read_dead_letter,
    )

    wanted = parse_coordinates(coordinates)
    record = run(_fetch(settings_of(config, bootstrap).kafka, wanted))
    data = record.value or b""
    if not read_dead_letter(record).reason:
        err.print(
            printable(f"{coordinates}: no dead letter: it has no fl-reason"),
            markup=False,
            soft_wrap=True,
        )
    if value is not None:
        _save("--out", value, data)
    if picture is not None:
        _save("--picture", picture, picture_of(record))
    if json:
        headers = [[name, text.decode("utf-8", "replace")] for name, text in record.headers]
        print_json({"letter": read_dead_letter(record), "headers": headers}, indent=True)
        return
    _print_letter(read_dead_letter(record))
    for name, text in record.headers:
        if not name.startswith("fl-"):
            shown = text.decode("utf-8", "replace")
            out.print(printable(f"header {name}: {shown}"), markup=False, soft_wrap=True)
    out.print(hexdump(data, _DUMP_BYTES) or "(no value)", markup=False, soft_wrap=True)


def _save(option: str, path: Path, data: bytes | memoryview) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from error
    err.print(f"saved {len(data)} bytes to {path}", markup=False)


async def _read(kafka: KafkaSettings, topics: list[str]) -> list[DeadLetter]:
    from frameloom.dlq import read_dead_letter
    from frameloom.reader import TopicReader

    async with TopicReader(kafka, *topics, from_start=True) as reader:
        # Only the headers are kept: values may be megabytes each.
        letters = [read_dead_letter(record) async for record in reader.up_to_now()]
    return sorted(letters, key=lambda letter: letter.at_us or 0)


async def _fetch(kafka: KafkaSettings, coordinates: Coordinates) -> RawRecord:
    from frameloom.reader import RecordFetcher, require_partition

    await require_partition(kafka, coordinates)
    async with RecordFetcher(kafka) as fetcher:
        return await fetcher.fetch(coordinates)


def _print_table(letters: list[DeadLetter]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    # What `dlq show` takes is never cut short; the others shrink where the terminal is narrow.
    table.add_column("dead letter", no_wrap=True, overflow="fold", min_width=_widest(letters))
    for heading in ("stream", "reason", "stage", "bytes", "detail"):
        table.add_column(heading, overflow="fold")
    for letter in letters:
        cells = (
            _where(letter),
            letter.key,
            letter.reason,
            letter.stage,
            str(letter.nbytes),
            letter.detail,
        )
        # As text, not markup: details quote what the producer sent.
        table.add_row(*(Text(printable(cell)) for cell in cells))
    out.print(table)


def _where(letter: DeadLetter) -> str:
    return f"{letter.topic}/{letter.partition}/{letter.offset}"


def _widest(letters: list[DeadLetter]) -> int:
    return max((len(_where(letter)) for letter in letters), default=0)


def _print_letter(letter: DeadLetter) -> None:
    lines = {
        "reason": f"{letter.reason} (stage {letter.stage})",
        "detail": letter.detail,
        "source": letter.source,
        "key": letter.key,
        "attempts": letter.attempts,
        "worker": letter.worker,
        "bytes": str(letter.nbytes),
    }
    for name, text in lines.items():
        out.print(printable(f"{name}: {text}"), markup=False, soft_wrap=True)
