"""The worker: sees its parts through start, work, drain and failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pipeline import metrics as m
from pipeline.engine import EngineState
from pipeline.ledger import PartitionId
from pipeline.metrics import Metrics
from pipeline.ports import Clock
from schemas.errors import ConfigError, FatalError, TransientError
from schemas.settings import Guarantee, Settings
from workers.anchor import Anchor, Time
from workers.assembly import Machinery, Parts, assemble
from workers.committer import commit_regularly
from workers.exits import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED
from workers.health import Health, HealthServer
from workers.kafka_clients import check_topics
from workers.lifecycle import Lifecycle, WorkerState
from workers.loading import LoadingStopped
from workers.logs import get_log
from workers.seat import ALONE, Seat
from workers.tasks import Failure
from workers.waiting import Waiting

GAUGE_S = 1.0
ENGINE_STOP_S = 5.0


class Worker:
    """One detection worker. Made inside an event loop, and run once in it.

    Args:
        settings: everything.
        load: loads models and warms them up; called on a thread of its own, before the group is
            joined. May raise ConfigError, and LoadingStopped after a request to stop.
        clock: monotonic seconds.
        seat: its place in a fleet.

    Attributes:
        metrics: this worker's own.
        http_port: where health is served; None before the start or when it is off.
        engine_ended: whether the threads of the engine and of segments have ended; if not, only the
            end of the process ends them.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Machinery],
        *,
        clock: Clock = time.monotonic,
        seat: Seat = ALONE,
    ) -> None:
        self._settings = settings
        self._load = load
        self._seat = seat
        self._time = Time(Anchor.now(clock), clock)
        self._log = get_log("frameloom.worker")
        self.metrics = Metrics(settings.http.top_streams)
        self.http_port: int | None = None
        self.engine_ended = True
        self._lifecycle = Lifecycle(self._entered)
        self._health = HealthServer(settings.http, self.metrics.registry, self._look, seat.listener)
        self._parts: Parts | None = None
        self._left = False
        loop = asyncio.get_running_loop()
        self._stop: asyncio.Future[None] = loop.create_future()
        self._failure: asyncio.Future[Failure] = loop.create_future()

    @property
    def state(self) -> WorkerState:
        return self._lifecycle.state

    @property
    def assigned(self) -> frozenset[PartitionId]:
        """The partitions it reads now."""
        return frozenset() if self._parts is None else self._parts.source.assigned

    @property
    def unsettled(self) -> int:
        """Records taken in and not settled. May be asked from any thread."""
        return 0 if self._parts is None else _unsettled(self._parts)

    @property
    def in_group(self) -> bool:
        """Whether it joins, has joined or is leaving its group. May be asked from any thread."""
        return self._parts is not None and not self._left

    def request_stop(self) -> None:
        """Drain and end. From the event loop's thread; later calls change nothing."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def run(self) -> int:
        """Work until told to stop or until something fails. Returns the exit code: 0 drained,
        1 failed (what was unsettled is uncommitted), 2 a setting or a topic is wrong."""
        try:
            return await self._run()
        except ConfigError as error:
            return self._failed(error, EXIT_CONFIG)
        except (FatalError, TransientError) as error:
            return self._failed(error, EXIT_FAILED)
        finally:
            self._health.stop()

    async def _run(self) -> int:
        if self._settings.http.enabled:
            self.http_port = self._health.start()
            # In a fleet it is the parent's port that is asked.
            if self._seat is ALONE:
                self._log.info("http_listening", host=self._settings.http.host, port=self.http_port)
        await self._check_topics()
        machinery = await self._loaded()
        if machinery is None:
            self._lifecycle.enter(WorkerState.STOPPED)
            return EXIT_DONE
        self._parts = parts = assemble(
            self._settings, machinery, self.metrics, self._time, self._fail, self._log
        )
        try:
            await self._start(parts)
            await self._first_of(self._stop)
            return await self._drain(parts)
        finally:
            await self._close(parts)

    async def _check_topics(self) -> None:
        routes = self._settings.routes
        names = [t for route in routes for t in (route.input, route.output, route.dead_letter)]
        missing = await check_topics(self._settings.kafka, names)
        if missing:
            raise ConfigError(
                f"missing topics: {', '.join(missing)}; create them with: "
                "frameloom topics create --config C"
            )

    async def _loaded(self) -> Machinery | None:
        """What was loaded, or None, draining, when the stop came first."""
        begun_at = self._time.clock()
        loading = asyncio.ensure_future(asyncio.to_thread(self._load))
        await asyncio.wait((loading, self._stop), return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            self._lifecycle.enter(WorkerState.DRAINING)
            # Its thread cannot be cancelled; it ends before its next step.
            await asyncio.wait((loading,))
            error = loading.exception()
            if error is not None and not isinstance(error, LoadingStopped):
                self._log.warning("loading_failed", kind=type(error).__name__, error=str(error))
            return None
        machinery = loading.result()
        self._log.info("models_loaded", seconds=round(self._time.clock() - begun_at, 2))
        return machinery

    async def _start(self, parts: Parts) -> None:
        await parts.sink.start()
        parts.engine.start()
        parts.segments.start()
        await parts.source.start()
        self._lifecycle.enter(WorkerState.RUNNING)
        commits = commit_regularly(self._settings.delivery, parts.delivery, parts.source.commit)
        for name, work in (
            ("poll", parts.source.poll()),
            ("commit", commits),
            ("beat", parts.watchdog.beat()),
            ("watch_log", parts.watchdog.watch_log()),
            ("gauge", self._gauge(parts)),
        ):
            parts.tasks.spawn(work, name)

    async def _first_of(self, wanted: asyncio.Future[None], timeout_s: float | None = None) -> bool:
        """Wait for `wanted`, at most so long. True when it is done.

        Raises:
            FatalError, ConfigError: the worker failed first.
        """
        await asyncio.wait(
            (wanted, self._failure), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if self._failure.done():
            raise self._failure.result()
        return wanted.done()

    async def _drain(self, parts: Parts) -> int:
        """Settle what is inside, commit, and be ready to leave.

        Raises:
            FatalError, ConfigError: something failed meanwhile.
        """
        self._lifecycle.enter(WorkerState.DRAINING)
        await parts.tasks.cancel("poll", "watch_log")
        parts.delivery.take_no_more()
        timeout_s = self._settings.lifecycle.drain_timeout_ms / 1e3
        settling = asyncio.ensure_future(self._settle(parts))
        try:
            drained = await self._first_of(settling, timeout_s)
        finally:
            settling.cancel()
        await parts.tasks.cancel("commit")
        committed = await parts.source.commit()
        left = _unsettled(parts)
        self._log.info(
            "drained", settled=parts.delivery.settled, unsettled=left, committed=committed
        )
        if not drained:
            raise FatalError(f"{left} records were not settled in {timeout_s:g} s of draining")
        self._lifecycle.enter(WorkerState.STOPPED)
        return EXIT_DONE

    async def _settle(self, parts: Parts) -> None:
        """Answer everything that was admitted. Claims are fetched and segments read to their end
        first: an engine that drains takes no more frames."""
        await parts.delivery.wait_read()
        parts.engine.drain()
        await parts.delivery.wait_settled()

    async def _close(self, parts: Parts) -> None:
        """End everything, from whatever state. Commits nothing."""
        parts.segments.halt()
        await parts.tasks.cancel("poll", "commit", "watch_log", "gauge")
        if self._settings.delivery.guarantee is Guarantee.EXACTLY_ONCE:
            # Its writers ask the source for offsets.
            await parts.sink.stop()
        await parts.source.stop()
        self._left = True
        await parts.downloads.close()
        engine_ended = await asyncio.to_thread(parts.engine.stop, ENGINE_STOP_S)
        await parts.tasks.cancel()
        segments_ended = await asyncio.to_thread(parts.segments.stop, ENGINE_STOP_S)
        self.engine_ended = engine_ended and segments_ended
        await parts.sink.stop()

    async def _gauge(self, parts: Parts) -> None:
        waiting = Waiting(self._time.clock())
        while True:
            self._look_for_partitions(waiting)
            parts.sink.gauge()
            snapshot = parts.engine.snapshot()
            self.metrics.set(m.RUNNING_BATCHES, snapshot.running)
            self.metrics.set(m.FREE_SLOTS, snapshot.free_slots)
            for depth in snapshot.depths:
                self.metrics.set(m.QUEUE_DEPTH, depth.waiting, depth.route, depth.bucket)
                self.metrics.set(m.BATCH_LIMIT, depth.limit, depth.route, depth.bucket)
            for drift in snapshot.drifts:
                self.metrics.set(m.SURFACE_RATIO, drift.ratio, drift.route, drift.bucket)
                self.metrics.set(m.SURFACE_DRIFTED, drift.alarmed, drift.route, drift.bucket)
            await asyncio.sleep(GAUGE_S)

    def _look_for_partitions(self, waiting: Waiting) -> None:
        waited_s = waiting.look(self._time.clock(), assigned=bool(self.assigned))
        if waited_s is not None and self._lifecycle.state is WorkerState.RUNNING:
            self._log.info("waiting_for_partitions", seconds=round(waited_s))

    def _fail(self, error: Failure) -> None:
        if self._failure.done():
            self._log.error("failed_again", error=str(error))
        else:
            self._failure.set_result(error)

    def _failed(self, error: Exception, code: int) -> int:
        self._log.error("worker_failed", kind=type(error).__name__, error=str(error), code=code)
        self._lifecycle.enter(WorkerState.FAILED)
        return code

    def _entered(self, state: WorkerState) -> None:
        self._log.info("worker_state", state=state.value)

    def _look(self) -> Health:
        """Asked by the health server's threads: reads only what is safe to read there."""
        state, parts = self._lifecycle.state, self._parts
        details: dict[str, object] = {"state": state.value}
        blocked: list[str] = []
        healthy = state is not WorkerState.FAILED
        if parts is not None and state in (WorkerState.RUNNING, WorkerState.DRAINING):
            engine, watchdog = parts.engine.state, parts.watchdog
            healthy = (
                watchdog.is_beating and not watchdog.is_stalled and engine is not EngineState.FAILED
            )
            details |= {
                "engine": engine.value,
                "loop_beating": watchdog.is_beating,
                "stalled": watchdog.is_stalled,
                "in_flight": parts.delivery.in_flight,
                "assigned_partitions": len(self.assigned),
            }
            if blocked := sorted(parts.sink.blocked):
                details["blocked_topics"] = ", ".join(blocked)
        # A blocked topic is no reason to restart: the worker goes on by itself once it is back.
        ready = healthy and state is WorkerState.RUNNING and bool(self.assigned) and not blocked
        return Health(healthy, ready, details)


def _unsettled(parts: Parts) -> int:
    return parts.delivery.in_flight + len(parts.delivery.segments)
