"""The worker's asyncio tasks, and the one boundary at which their errors end the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from schemas.errors import ConfigError, FatalError
from workers.logs import Log

Work = Coroutine[object, object, None]
Failure = FatalError | ConfigError
"""What ends the worker: it failed, or a setting turned out to be wrong after the start."""
Spawn = Callable[[Work, str], None]
"""Runs a coroutine, under a name, until it ends or the worker does."""


class Tasks:
    """Runs tasks; the first error of any is reported once. Belongs to the event loop's thread.

    Args:
        fail: told of the error; what is no `Failure` is logged and wrapped into one.
        log: for unexpected errors.
    """

    def __init__(self, fail: Callable[[Failure], None], log: Log) -> None:
        self._fail = fail
        self._log = log
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def spawn(self, work: Work, name: str) -> None:
        """Run `work`.

        Raises:
            ValueError: a task of this name is running.
        """
        if name in self._tasks:
            work.close()
            raise ValueError(f"task {name!r} is running already")
        task = asyncio.get_running_loop().create_task(self._guard(work, name), name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._ended(work, name))

    async def cancel(self, *names: str) -> None:
        """End these tasks (without names: all) and wait until they have ended."""
        chosen = [self._tasks[name] for name in names or list(self._tasks) if name in self._tasks]
        for task in chosen:
            task.cancel()
        if chosen:
            await asyncio.wait(chosen)

    def _ended(self, work: Work, name: str) -> None:
        # A task cancelled before its first step never began to await its work.
        work.close()
        del self._tasks[name]

    async def _guard(self, work: Work, name: str) -> None:
        try:
            await work
        except (FatalError, ConfigError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 (the boundary of a task)
            self._log.exception("task_failed", task=name)
            self._fail(FatalError(f"{name}: {type(error).__name__}: {error}"))
