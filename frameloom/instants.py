"""Instants as people write them on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from schemas.errors import ConfigError

_AGO = re.compile(r"([0-9]{1,9})(s|min|h|d)")
_UNIT_S = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}


def parse_instant(text: str, now_us: int) -> int:
    """Unix microseconds of `text`: so long ago (`90s`, `15min`, `2h`, `7d`) or an ISO 8601 date
    or time (`2026-11-29`, `2026-11-29T08:30`, `...+01:00`); UTC where no zone is named.

    Raises:
        ConfigError: it is neither.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_us - int(ago[1]) * _UNIT_S[ago[2]] * 1_000_000
    try:
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is None:
            instant = instant.replace(tzinfo=UTC)
        return round(instant.timestamp() * 1e6)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{text!r} is no time: write 2h (ago), or 2026-11-29T08:30 (UTC)"
        ) from error
