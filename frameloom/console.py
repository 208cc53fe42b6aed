"""What all commands share: where text goes, how settings are found, how a command ends.

Standard output carries what was asked for and nothing else (one JSON document or JSON lines with
`--json`); progress, notes and errors go to standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.text import Text

from schemas.errors import ConfigError
from schemas.settings import KafkaSettings, Settings
from schemas.settings import load_settings as _load

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


def printable(text: str, *, keep: str = "") -> str:
    """The text with everything that a terminal would act on (escape sequences, line breaks, ...)
    spelled out. Stream ids, keys and file names are whatever their producers chose."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )


class _Terminal(Console):
    """A console on which text is what it says: no emoji by name, no foreign control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text, keep="\n\t"), **options)


out = _Terminal(highlight=False, emoji=False)
"""Standard output: answers."""
err = _Terminal(stderr=True, highlight=False, emoji=False)
"""Standard error: progress, notes, errors."""

Result = TypeVar("Result")


def settings_of(
    config: Path | None, bootstrap: str | None = None, overrides: list[str] | None = None
) -> Settings:
    """Settings of a command: file, environment, `--set`, then `--bootstrap`.

    Raises:
        ConfigError: a source of settings is wrong.
    """
    settings = _load(config, overrides=overrides or [])
    if bootstrap is None:
        return settings
    kafka: KafkaSettings = msgspec.structs.replace(settings.kafka, bootstrap_servers=bootstrap)
    return msgspec.structs.replace(settings, kafka=kafka)


def make_folder(option: str, folder: Path) -> None:
    """The folder that an option names, made where it is not there yet.

    Raises:
        ConfigError: it cannot be made, or is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigError(f"{option} {folder}: is a file, and a folder is needed") from None
    except OSError as error:
        raise ConfigError(f"{option} {folder}: {error.strerror}") from error


def rest_idle_threads() -> None:
    """Let torch's idle threads sleep instead of spin, unless the environment says otherwise.
    Must come before torch is imported: its OpenMP reads this once.

    Where other threads want the cores (decoders, a broker, producers), spinning made inference
    cost four to eight times the processor time (two cores, measured), and take longer too.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def print_json(value: Any, *, indent: bool = False) -> None:
    """One JSON document on standard output, on one line unless `indent`. Flushed: pipes read
    line by line."""
    data = msgspec.json.encode(value)
    if indent:
        data = msgspec.json.format(data, indent=2)
    sys.stdout.write(data.decode() + "\n")
    sys.stdout.flush()


@contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt in the main thread, so that the clean-up runs.
    For commands without an event loop; call from the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine. SIGTERM cancels it as Ctrl-C does, so that it cleans up.

    Raises:
        KeyboardInterrupt: interrupted by either signal, after the clean-up.
    """

    async def until_signalled() -> Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        loop.add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await task
        except asyncio.CancelledError:
            if terminated:
                raise KeyboardInterrupt from None
            raise
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    return asyncio.run(until_signalled())
