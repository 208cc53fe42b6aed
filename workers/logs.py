"""Structured logs on standard error, which neither bad records nor libraries can flood."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass

import structlog

from schemas.settings import LogSettings

Log = structlog.stdlib.BoundLogger

BURST = 5
"""Lines of one event that pass within a period."""
PERIOD_S = 10.0
MAX_MESSAGES = 1_000
"""Library messages that are told apart; their texts are few, unless values are baked in."""

OURS = "frameloom"


def configure(settings: LogSettings, device: str = "") -> None:
    """Send our events and the libraries' records through one handler, as JSON lines or coloured
    text. Replaces the root logger's handlers. `device`: stands in every line, unless empty."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if device:
        # No context variable: those are each thread's own.
        shared.append(_says_device(device))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(LibraryThrottle())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(settings.format),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=settings.level.upper(), force=True)
    # Every rebalance and metadata refresh is a line of its own at INFO; ours say it once.
    logging.getLogger("aiokafka").setLevel(logging.WARNING)


def _says_device(device: str) -> structlog.types.Processor:
    def add(
        _logger: object, _method: str, line: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        # In place of what one line may say: the only device that its process sees.
        line["device"] = device
        return line

    return add


def _renderers(style: str) -> list[structlog.types.Processor]:
    if style == "console":
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def get_log(name: str) -> Log:
    """A logger of events with fields: `log.info("worker_state", state="running")`."""
    log: Log = structlog.stdlib.get_logger(name)
    return log


@dataclass(slots=True)
class _Period:
    begun_at: float
    lines: int = 0
    suppressed: int = 0

    def passes(self) -> bool:
        """Count one more line; whether it is among the first."""
        if self.lines >= BURST:
            self.suppressed += 1
            return False
        self.lines += 1
        return True


class LibraryThrottle(logging.Filter):
    """Libraries repeat themselves: while a broker is away, aiokafka says so a hundred times a
    second. Of each of their messages (by its text before the values are filled in) at most `BURST`
    lines pass within a period; what was left out is counted in the first line of the next one.

    Ours pass: `frameloom` and the loggers below it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._periods: dict[tuple[str, str], _Period] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.name.split(".")[0] == OURS:
            return True
        now, text = time.monotonic(), str(record.msg)
        period = self._periods.get((record.name, text))
        if period is None or now - period.begun_at >= PERIOD_S:
            suppressed = 0 if period is None else period.suppressed
            if len(self._periods) >= MAX_MESSAGES:
                self._periods.clear()
            period = self._periods[record.name, text] = _Period(now)
            if suppressed:
                record.msg = f"{text} ({suppressed} more like it)"
        return period.passes()


class RecordLog:
    """Warnings about single records, at most `BURST` per event and period. What was left out is
    counted in the first line of the next period. Used by one thread.

    Args:
        log: where lines go.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._periods: dict[str, _Period] = {}

    def warn(self, event: str, now: float, **fields: object) -> None:
        """Log, unless the event has had its lines. `now`: monotonic seconds."""
        period = self._periods.get(event)
        if period is None or now - period.begun_at >= PERIOD_S:
            suppressed = 0 if period is None else period.suppressed
            period = self._periods[event] = _Period(now)
            if suppressed:
                fields["suppressed"] = suppressed
        if period.passes():
            self._log.warning(event, **fields)
