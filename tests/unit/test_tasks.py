"""Errors of a task end the worker once; cancelling is no error."""

from __future__ import annotations

import asyncio

import pytest

from schemas.errors import ConfigError, FatalError
from workers.logs import get_log
from workers.tasks import Failure, Tasks


async def raising(error: Exception) -> None:
    raise error


async def waiting() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_fatal_error_is_reported_as_it_is_and_others_wrapped() -> None:
    errors: asyncio.Queue[Failure] = asyncio.Queue()
    tasks = Tasks(errors.put_nowait, get_log("test"))
    fatal = FatalError("gone")
    tasks.spawn(raising(fatal), "one")
    tasks.spawn(raising(KeyError("bug")), "two")
    assert await errors.get() is fatal
    assert "two: KeyError" in str(await errors.get())


async def test_a_setting_that_turns_out_wrong_later_is_still_that() -> None:
    errors: asyncio.Queue[Failure] = asyncio.Queue()
    tasks = Tasks(errors.put_nowait, get_log("test"))
    wrong = ConfigError("kafka.sasl_password: refused")
    tasks.spawn(raising(wrong), "claim")
    assert await errors.get() is wrong


async def test_cancelled_tasks_report_nothing_and_free_their_names() -> None:
    errors: list[Failure] = []
    tasks = Tasks(errors.append, get_log("test"))
    tasks.spawn(waiting(), "a")
    tasks.spawn(waiting(), "b")
    with pytest.raises(ValueError, match="'a' is running"):
        tasks.spawn(waiting(), "a")
    await tasks.cancel("a", "unknown")
    tasks.spawn(waiting(), "a")
    await tasks.cancel()
    await tasks.cancel()
    assert errors == []
