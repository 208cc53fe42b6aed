"""`frameloom topics create|list`."""

from __future__ import annotations

from typing import Annotated

import typer

from frameloom.cli_options import BootstrapOption, ConfigOption, JsonOption
from frameloom.console import out, print_json, run, settings_of

app = typer.Typer(help="The topics that the routes need.", no_args_is_help=True)


@app.command()
def create(
    *,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    partitions: Annotated[int, typer.Option(min=1, help="Of input and output topics.")] = 4,
    replication: Annotated[int, typer.Option(min=1, help="Copies of each partition.")] = 1,
    json: JsonOption = False,
) -> None:
    """Create the input, output and dead-letter topics of all routes; existing ones stay."""
    from frameloom.topics import create_route_topics

    settings = settings_of(config, bootstrap)
    topics = run(create_route_topics(settings, partitions=partitions, replication=replication))
    if json:
        print_json([{"name": t.name, "created": not t.present, "role": t.role} for t in topics])
        return
    for topic in topics:
        done = "exists" if topic.present else "[green]created[/]"
        out.print(f"{topic.name}  [dim]{topic.role} of {topic.route}[/]  {done}")


@app.command("list")
def list_(
    config: ConfigOption = None, bootstrap: BootstrapOption = None, json: JsonOption = False
) -> None:
    """List the routes' topics, there or missing, and what else the broker has."""
    from rich.table import Table

    from frameloom.topics import list_route_topics

    topics = run(list_route_topics(settings_of(config, bootstrap)))
    if json:
        print_json(topics)
        return
    table = Table("topic", "role", "route", "state")
    for topic in topics:
        state = "there" if topic.present else "[red]missing[/]"
        table.add_row(topic.name, topic.role, topic.route, state)
    out.print(table)
