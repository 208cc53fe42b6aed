"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Settings (YAML); defaults without."),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT", help="Kafka brokers, over those of the settings."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="One setting, over file and environment."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="For machines: JSON alone on standard output.")
]
FromStartOption = Annotated[
    bool, typer.Option("--from-start", help="Read what the topic holds already, too.")
]
