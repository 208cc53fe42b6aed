"""docker-compose.yml as the tests read it: merged, with its variables filled in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
OURS = ("topics", "worker", "worker-gpu", "producer", "cli")
"""The services that run our image."""

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:?)-([^}]*))?\}")


def env_file(path: Path) -> dict[str, str]:
    """The variables of `.env` or its stand-in."""
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return dict(cast("tuple[str, str]", line.split("=", 1)) for line in lines)


def services(variables: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """The services by name. Of variables that are not given the default counts, and with `:-` of
    empty ones, too."""
    known = variables or {}

    def value(found: re.Match[str]) -> str:
        name, colon, default = found.groups()
        given = known.get(name)
        return default or "" if given is None or (colon and not given) else given

    return yaml.safe_load(_VARIABLE.sub(value, FILE.read_text()))["services"]


def command_of(service: Mapping[str, Any]) -> list[str]:
    """The words of its command, as Docker takes them."""
    command = service["command"]
    return shlex.split(command) if isinstance(command, str) else list(command)


def seconds(duration: str) -> int:
    """Of a duration such as `30s`."""
    return int(duration.removesuffix("s"))


def kafka_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """What Kafka's image makes of its `KAFKA_*` variables: server properties."""
    prefix = "KAFKA_"
    return {
        name.removeprefix(prefix).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(prefix) and name != "KAFKA_HEAP_OPTS"
    }


def copied(dockerfile: Path) -> list[str]:
    """Sources of the COPY lines, without those from other stages."""
    sources: list[str] = []
    for line in dockerfile.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            sources += words[1:-1]
    return sources
