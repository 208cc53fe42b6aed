"""Native calls as the device's stages make them: guarded, and with one error for memory."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from pipeline.cuda_runtime import device_errors
from pipeline.guard import Guard
from pipeline.journal import Located, Stage
from pipeline.retry import Backoff
from schemas.errors import TransientError

T = TypeVar("T")

log = logging.getLogger(__name__)

BACKOFF = Backoff(first_s=0.05, longest_s=1.0, random=random.random)
"""Between runs of a single frame that finds no memory. Whoever holds it may be done soon."""


class NativeCalls:
    """Makes native calls on the stages' threads.

    Args:
        guard: stands around each of them.
        cuda: whether the device has a memory cache that can be emptied.
    """

    def __init__(self, guard: Guard, *, cuda: bool) -> None:
        self._guard = guard
        self._cuda = cuda

    def run(self, stage: Stage, items: Sequence[Located], call: Callable[[], T]) -> T:
        """Make a call for these items.

        Raises:
            TransientError: memory ran out.
            FatalError: the GPU can no longer be used.
            Exception: whatever else the call raises.
        """
        with self._guard.inside(stage, items):
            try:
                with device_errors():
                    return call()
            except (MemoryError, torch.OutOfMemoryError) as error:
                shortage = f"{type(error).__name__}: {error}"
        # Out here the error is gone, and with it the frames that kept what the call had taken.
        self._free()
        log.warning("%s ran out of memory for %d frames: %s", stage.value, len(items), shortage)
        raise TransientError(f"out of memory: {shortage}")

    def works(self, stage: Stage, call: Callable[[], object]) -> bool:
        """Whether a call on harmless input succeeds. It stands in the journal for nobody."""
        try:
            with self._guard.inside(stage, ()):
                call()
        except Exception:
            log.exception("the %s stage fails on harmless input", stage.value)
            return False
        return True

    def pause(self, failures: int) -> None:
        """Before a single frame is run again after so many failures."""
        time.sleep(BACKOFF.pause_s(failures))

    def _free(self) -> None:
        gc.collect()
        if self._cuda:
            torch.cuda.empty_cache()
