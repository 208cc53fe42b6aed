"""The watchdog: a worker that no longer gets anywhere must say so, and end.

Three ways to be stuck are told apart: the event loop does not turn (seen by whoever asks
`/healthz`, from another thread), records are in flight but nothing settles, and the log has
records but none arrive, or the group does not let this worker in though the broker answers (a
consumer may stay stuck after a broker's restart).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pipeline.ports import Clock
from schemas.errors import FatalError

BEAT_S = 0.5
LOOP_STALL_S = 10.0
"""A heartbeat older than this means that the event loop hangs."""
LAG_LOOK_S = 10.0
"""Time between two looks at the log; less where the stall time-out is short."""


class Watchdog:
    """Watches progress. `is_beating` may be asked from any thread; the rest is the loop's.

    Args:
        stall_timeout_s: how long nothing may move while there is something to move.
        in_flight: records in flight now.
        last_progress_at: monotonic seconds of the last settlement or first receipt.
        behind: whether there are records that this worker should get and does not.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        stall_timeout_s: float,
        *,
        in_flight: Callable[[], int],
        last_progress_at: Callable[[], float],
        behind: Callable[[], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._in_flight = in_flight
        self._last_progress_at = last_progress_at
        self._behind = behind
        self._clock = clock
        self._beat_at = clock()
        self._caught_up_at = clock()

    @property
    def is_beating(self) -> bool:
        """Whether the event loop turns."""
        return self._clock() - self._beat_at < LOOP_STALL_S

    @property
    def is_stalled(self) -> bool:
        """Whether records are in flight and nothing has settled for too long."""
        waited_s = self._clock() - self._last_progress_at()
        return self._in_flight() > 0 and waited_s > self._stall_timeout_s

    async def beat(self) -> None:
        """Prove that the loop turns, until cancelled.

        Raises:
            FatalError: nothing has settled for the stall time-out.
        """
        while True:
            self._beat_at = self._clock()
            if self.is_stalled:
                raise FatalError(
                    f"{self._in_flight()} records are in flight and none has settled for "
                    f"{self._stall_timeout_s:g} s (lifecycle.stall_timeout_ms)"
                )
            await asyncio.sleep(BEAT_S)

    async def watch_log(self) -> None:
        """Compare the log with what arrives, until cancelled.

        Raises:
            FatalError: the worker has been behind for the stall time-out, and nothing moved.
        """
        while True:
            self.judge_log(behind=await self._behind())
            await asyncio.sleep(min(LAG_LOOK_S, self._stall_timeout_s / 4))

    def judge_log(self, *, behind: bool) -> None:
        """One look at the log.

        Raises:
            FatalError: see `watch_log`.
        """
        now = self._clock()
        if not behind or self._in_flight():
            # Records in flight are the other rule's business.
            self._caught_up_at = now
            return
        since_at = max(self._caught_up_at, self._last_progress_at())
        if now - since_at > self._stall_timeout_s:
            raise FatalError(
                "the broker has records or a place in the group for this worker, but nothing has "
                f"arrived for {now - since_at:.0f} s: the consumer is stuck"
                " (lifecycle.stall_timeout_ms)"
            )
