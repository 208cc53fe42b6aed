"""`frameloom consume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, FromStartOption, JsonOption
from frameloom.console import (
    EXIT_FAILED,
    err,
    make_folder,
    out,
    print_json,
    printable,
    run,
    settings_of,
)

if TYPE_CHECKING:
    from schemas.settings import Settings


def consume(
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="A topic of results.")],
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many results.")] = None,
    from_start: FromStartOption = False,
    json: JsonOption = False,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write each answered frame with its boxes there."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="S", help="End after so many seconds without a result."),
    ] = None,
) -> None:
    """Show results as they arrive. Fails when --count is not reached before --timeout."""
    if draw is not None:
        make_folder("--draw", draw)
    settings = settings_of(config, bootstrap)
    view = _View(json=json)
    try:
        run(_follow(settings, topic, view, count=count, from_start=from_start, folder=draw,
                    timeout=timeout))  # fmt: skip
    except KeyboardInterrupt:
        err.print("stopped")
        return
    err.print(f"{view.shown} results" + (f", {view.unreadable} unreadable records"
              if view.unreadable else ""))  # fmt: skip
    if view.unreadable or (count is not None and view.shown < count):
        raise typer.Exit(EXIT_FAILED)


async def _follow(
    settings: Settings,
    topic: str,
    view: _View,
    *,
    count: int | None,
    from_start: bool,
    folder: Path | None,
    timeout: float | None,  # noqa: ASYNC109  (of silence, not of this call)
) -> None:
    from contextlib import AsyncExitStack

    from frameloom.consume import Annotator, Unreadable, json_of, results, row_of
    from frameloom.reader import RecordFetcher, TopicReader

    async with AsyncExitStack() as stack:
        reader = TopicReader(settings.kafka, topic, from_start=from_start)
        await stack.enter_async_context(reader)
        annotator = None
        if folder is not None:
            fetcher = await stack.enter_async_context(RecordFetcher(settings.kafka))
            annotator = Annotator(fetcher, folder, settings.limits)
        err.print(f"reading {topic} ...", markup=False)
        async for found in results(reader, count=count, idle_s=timeout):
            if isinstance(found, Unreadable):
                view.skip(f"{found.where}: {found.why}")
                continue
            view.show(json_of(found), row_of(found))
            if annotator is not None:
                drawn = await annotator.write(found)
                if isinstance(drawn, str):
                    view.note(f"{found.stream_id} {found.seq}: {drawn}")
                else:
                    view.note(f"wrote {drawn}")


class _View:
    """Prints results: JSON lines, or rows of a table that never ends (so no frame around it)."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self.shown = 0
        self.unreadable = 0

    def show(self, document: object, row: tuple[str, ...]) -> None:
        if self._json:
            print_json(document)
        else:
            if self.shown == 0:
                from frameloom.consume import COLUMNS

                out.print(self._line(COLUMNS), style="bold", markup=False, soft_wrap=True)
            out.print(self._line(row), markup=False, soft_wrap=True)
        self.shown += 1

    def skip(self, why: str) -> None:
        self.unreadable += 1
        err.print(why, style="red", markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        err.print(text, style="dim", markup=False, soft_wrap=True)

    @staticmethod
    def _line(cells: tuple[str, ...]) -> str:
        widths = (18, 8, 8, 10, 30, 22, 9)
        padded = (f"{printable(cell):<{wide}}" for cell, wide in zip(cells, widths, strict=True))
        return "  ".join(padded).rstrip()
