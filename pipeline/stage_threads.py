"""A device's stages: one thread each, in a row, with a queue before each of them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from schemas.errors import FatalError

W = TypeVar("W")

log = logging.getLogger(__name__)


class StageThreads(Generic[W]):
    """Threads that hand work from one stage to the next, each stage one work at a time, in order.

    Nothing bounds the queues: the device's slots do, and the engine's credits.

    Args:
        stages: name and what it does with a work, the first one first.
        failed: told, on the stage's thread, of the error that ended a stage. The stages behind it
            end too, after the work that had passed it.
    """

    def __init__(
        self,
        stages: Sequence[tuple[str, Callable[[W], None]]],
        failed: Callable[[FatalError], None],
    ) -> None:
        self._failed = failed
        self._inboxes: list[queue.SimpleQueue[W | None]] = [queue.SimpleQueue() for _ in stages]
        self._threads = [
            threading.Thread(
                target=self._run, args=(index, name, work_on), name=f"device-{name}", daemon=True
            )
            for index, (name, work_on) in enumerate(stages)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, work: W) -> None:
        """Give work to the first stage. Never blocks."""
        self._inboxes[0].put(work)

    def close(self) -> None:
        """Each stage ends after the work before it. Never blocks; safe to call twice."""
        self._inboxes[0].put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads' end after `close`. True when all ended in time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, index: int, name: str, work_on: Callable[[W], None]) -> None:
        inbox, behind = self._inboxes[index], self._inboxes[index + 1 : index + 2]
        try:
            while (work := inbox.get()) is not None:
                work_on(work)
                for outbox in behind:
                    outbox.put(work)
        except FatalError as error:
            self._failed(FatalError(f"the {name} stage: {error}"))
        except Exception as error:
            log.exception("the %s stage failed", name)
            self._failed(FatalError(f"the {name} stage: {type(error).__name__}: {error}"))
        finally:
            for outbox in behind:
                outbox.put(None)
