"""Settings: typed, every key documented, unknown keys refused, secrets never shown.

Sources in rising order: the defaults, a YAML file, `FRAMELOOM__SECTION__KEY` environment
variables, `--set section.key=value`. An element of a list is addressed by its index or by its
name: `routes.0.conf=0.4`, `routes.default.conf=0.4`, `FRAMELOOM__ROUTES__0__CONF=0.4`.

`settings_keys` holds the keys (those of `kafka` and `routes` in `settings_kafka` and
`settings_routes`, kinds of values in `settings_types`), `settings_rules` the rules between them,
`settings_sources` what was said where, `settings_check` the comparison of the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import msgspec

from schemas.errors import ConfigError
from schemas.settings_check import Violation, as_secret, check, shown
from schemas.settings_kafka import KafkaSettings
from schemas.settings_keys import (
    ClaimCheckSettings,
    DeliverySettings,
    DeviceSettings,
    FlowSettings,
    Guarantee,
    HttpSettings,
    LifecycleSettings,
    LimitSettings,
    LogSettings,
    Order,
    Policy,
    Settings,
    WindowSettings,
)
from schemas.settings_routes import (
    DEFAULT_BUCKETS,
    Backend,
    BucketSettings,
    Precision,
    RouteSettings,
)
from schemas.settings_rules import violations
from schemas.settings_sources import Draft, apply, draft_of_file, env_changes, set_changes
from schemas.settings_types import MIB, Secret
from schemas.settings_yaml import Path, dotted

__all__ = [
    "DEFAULT_BUCKETS",
    "MIB",
    "Backend",
    "BucketSettings",
    "ClaimCheckSettings",
    "DeliverySettings",
    "DeviceSettings",
    "FlowSettings",
    "Guarantee",
    "HttpSettings",
    "KafkaSettings",
    "LifecycleSettings",
    "LimitSettings",
    "LogSettings",
    "Order",
    "Policy",
    "Precision",
    "RouteSettings",
    "Secret",
    "Settings",
    "WindowSettings",
    "describe",
    "load_settings",
]


def load_settings(
    path: str | FilePath | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    overrides: Sequence[str] = (),
) -> Settings:
    """Read the settings from all their sources and check them.

    Args:
        path: a YAML file, or None for the defaults alone.
        env: variables that begin with `FRAMELOOM__` count, and each must name a key.
        overrides: `section.key=value`. Here and in variables, keys that hold texts take the text
            as it is, the others read it as YAML.

    Raises:
        ConfigError: one line per problem: source (file and line, variable, option), key, value,
            what was expected. Values of secrets never stand in it.
    """
    draft = Draft() if path is None else draft_of_file(path)
    for change in (*env_changes(env), *set_changes(overrides)):
        apply(draft, change)
    _refuse(list(check(Settings, draft.content)), draft)
    settings = msgspec.convert(draft.content, Settings, dec_hook=as_secret)
    settings = _with_password_file(settings, draft)
    broken = [replace(each, value=_shown_at(settings, each.path)) for each in violations(settings)]
    _refuse(broken, draft)
    return settings


def describe(settings: Settings) -> dict[str, Any]:
    """The settings as plain maps, lists and scalars for logs and `--json`; secrets as stars."""
    return msgspec.to_builtins(settings, enc_hook=_stars)


def _stars(value: object) -> str:
    if isinstance(value, Secret):
        return "***"
    raise NotImplementedError(f"no plain form of {type(value).__name__}")


def _refuse(problems: Sequence[Violation], draft: Draft) -> None:
    if problems:
        raise ConfigError("\n".join(_line(problem, draft) for problem in problems))


def _line(violation: Violation, draft: Draft) -> str:
    value = f" = {violation.value}" if violation.value else ""
    source = draft.source(violation.path)
    line = f"{source}: {dotted(violation.path)}{value}: {violation.problem}"
    if not violation.other:
        return line
    return f"{line} ({dotted(violation.other)} is from {draft.source(violation.other)})"


def _shown_at(settings: Settings, path: Path) -> str:
    node: Any = settings
    for part in path:
        node = node[part] if isinstance(part, int) else getattr(node, part)
    return shown(node)


def _with_password_file(settings: Settings, draft: Draft) -> Settings:
    kafka = settings.kafka
    name = kafka.sasl_password_file
    if name is None:
        return settings
    place: Path = ("kafka", "sasl_password_file")
    if kafka.sasl_password is not None:
        _refuse([Violation(place, "kafka.sasl_password is given too, keep one", name)], draft)
    try:
        password = FilePath(name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ConfigError(
            _line(Violation(place, f"cannot be read: {error.strerror}", name), draft)
        ) from error
    except UnicodeDecodeError:
        raise ConfigError(_line(Violation(place, "is not UTF-8", name), draft)) from None
    if not password:
        _refuse([Violation(place, "the file is empty", name)], draft)
    return msgspec.structs.replace(
        settings, kafka=msgspec.structs.replace(kafka, sasl_password=Secret(password))
    )
