"""The assembly: settings and machinery → the connected parts of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.bucket import Bucket, BucketTable
from pipeline.decode_segment import PyAvSegments
from pipeline.engine import EngineSnapshot, EngineState
from pipeline.flow import Flow
from pipeline.guard import Guard, Unguarded
from pipeline.item import Item, Outcome
from pipeline.ledger import Ledger, PartitionId
from pipeline.metrics import Metrics
from pipeline.segment import Sampling, SegmentLimits
from pipeline.segment_thread import SegmentThread
from pipeline.sequencer import Sequencer
from schemas.errors import FatalError, PoisonError
from schemas.result import ClosedBy, ModelInfo
from schemas.settings import DeliverySettings, Guarantee, Order, RouteSettings, Settings
from workers.admission import Admission, Intake
from workers.anchor import Time
from workers.answers import AnswerWriter, Destination
from workers.claim_fetch import ClaimFetcher, claim_rules
from workers.delivery import Delivery
from workers.desk import Books, Ends
from workers.downloads import Bounds, Downloads
from workers.kafka_outputs import Receipts
from workers.kafka_partition_writer import Ties
from workers.kafka_sink import KafkaSink
from workers.kafka_source import Claims, Hooks, KafkaSource
from workers.kafka_transactions import KafkaTransactions
from workers.logs import Log, RecordLog
from workers.segments import Segments
from workers.suspects import Suspects
from workers.tasks import Failure, Tasks
from workers.tickets import Answer, OrderUnit, Ticket
from workers.watchdog import Watchdog

Deliver = Callable[[Sequence[Outcome]], None]
Fail = Callable[[FatalError], None]


class EnginePort(Protocol):
    """What the worker asks of the engine. `pipeline.engine.Engine` is the real one."""

    @property
    def state(self) -> EngineState: ...
    def start(self) -> None: ...
    def submit(self, items: Sequence[Item]) -> None: ...
    def flush(
        self, closed_by: ClosedBy, partitions: frozenset[PartitionId] | None = None
    ) -> None: ...
    def drain(self) -> None: ...
    def stop(self, timeout_s: float) -> bool: ...
    def snapshot(self) -> EngineSnapshot: ...


class SinkPort(Protocol):
    """What the worker asks of a sink: one acknowledges each answer, the other commits them in
    transactions."""

    @property
    def blocked(self) -> Mapping[str, float]: ...
    async def start(self) -> None: ...
    def put(self, answer: Answer) -> None: ...
    def gauge(self) -> None: ...
    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Machinery:
    """What was loaded for a worker's routes.

    Attributes:
        make_engine: the engine, given `deliver` and `fail` (both are called on its thread).
        models: route name → the model that answers there.
        suspects: of earlier workers; nobody in one that keeps no journal.
        guard: stands around the native calls that read segments.
        tables: route name → its buckets as planned; the settings' own where it is missing.
    """

    make_engine: Callable[[Deliver, Fail], EnginePort]
    models: Mapping[str, ModelInfo]
    suspects: Suspects = field(default_factory=Suspects)
    guard: Guard = field(default_factory=Unguarded)
    tables: Mapping[str, BucketTable] = field(default_factory=dict[str, BucketTable])


@dataclass(frozen=True, slots=True)
class Parts:
    """What lives between a worker's start and its end."""

    delivery: Delivery
    downloads: Downloads
    engine: EnginePort
    source: KafkaSource
    sink: SinkPort
    segments: Segments
    tasks: Tasks
    watchdog: Watchdog


def assemble(
    settings: Settings,
    machinery: Machinery,
    metrics: Metrics,
    time: Time,
    fail: Callable[[Failure], None],
    log: Log,
) -> Parts:
    """Connect the parts. Nothing is started. Must be called inside the event loop.

    Args:
        settings, machinery, metrics, time: shared by the parts.
        fail: ends the worker; called on the event loop's thread.
        log: the worker's.
    """
    loop = asyncio.get_running_loop()
    books = _books(settings)
    writer = _answer_writer(settings, machinery, time)
    tasks = Tasks(fail, log)

    def to_delivery(outcomes: Sequence[Outcome]) -> None:
        _call(loop, lambda: delivery.complete(outcomes))

    engine = machinery.make_engine(to_delivery, lambda error: _call(loop, lambda: fail(error)))
    exactly_once = settings.delivery.guarantee is Guarantee.EXACTLY_ONCE

    # Made below, because delivery needs the sink, and the source delivery.
    receipts = _receipts(lambda: delivery, books.ledger, writer, exactly_once=exactly_once)
    topics = [topic for route in settings.routes for topic in (route.output, route.dead_letter)]
    transactions: KafkaTransactions | None = None
    if exactly_once:
        ties = _ties(lambda: source, receipts)
        transactions = KafkaTransactions(settings, topics, ties, tasks, metrics, log, time.clock)
    sink = transactions or KafkaSink(
        settings, topics, receipts, metrics, log, tasks.spawn, clock=time.clock
    )

    def fetched(ticket: Ticket, got: memoryview | PoisonError) -> None:
        delivery.fetched(ticket, got)

    downloads = Downloads(
        ClaimFetcher(settings.claim_check, claim_rules(settings.claim_check), clock=time.clock),
        Bounds(
            settings.claim_check.concurrency,
            settings.flow.max_bytes,
            settings.flow.max_held_per_stream,
        ),
        done=fetched,
        fail=fail,
        clock=time.clock,
        metrics=metrics,
        log=log,
    )
    segments = Segments(
        _segment_thread(settings, machinery),
        lambda: delivery.segments,
        settings.flow.max_segments,
        tasks.spawn,
        metrics,
        time.clock,
    )
    delivery = Delivery(
        books,
        _admission(settings, writer, time, log, machinery),
        writer,
        Ends(engine.submit, sink.put, downloads, segments.read),
        metrics,
        RecordLog(log),
        time,
    )
    hooks = Hooks(
        flush=lambda ids: engine.flush(ClosedBy.REVOKE, ids),
        fail=fail,
        claims=transactions and Claims(transactions.claim, transactions.release),
    )
    inputs = [route.input for route in settings.routes]
    source = KafkaSource(settings, inputs, delivery, books, hooks, metrics, log)
    watchdog = Watchdog(
        settings.lifecycle.stall_timeout_ms / 1e3,
        in_flight=lambda: delivery.in_flight,
        last_progress_at=lambda: delivery.last_progress_at,
        behind=source.behind,
        clock=time.clock,
    )
    return Parts(delivery, downloads, engine, source, sink, segments, tasks, watchdog)


def _receipts(
    delivery: Callable[[], Delivery],
    ledger: Ledger,
    writer: AnswerWriter,
    *,
    exactly_once: bool,
) -> Receipts:
    """What the sink tells delivery, once there is one."""

    def acknowledged(answers: Sequence[Answer]) -> None:
        delivery().acknowledge(answers)
        if exactly_once:
            # Answers leave in the partition's order, and each is committed with its offset.
            for answer in answers:
                ticket = answer.ticket
                delivery().committed(ticket.partition, ticket.epoch, ticket.record.offset + 1)

    return Receipts(
        is_live=lambda answer: ledger.is_open(answer.ticket.partition, answer.ticket.epoch),
        acknowledged=acknowledged,
        dropped=lambda answer: delivery().abandon(answer.ticket),
        too_large=lambda answer, error: writer.dead_letter(answer.ticket, error),
    )


def _ties(source: Callable[[], KafkaSource], receipts: Receipts) -> Ties:
    """What transactions ask of the source, once there is one."""
    return Ties(
        committed=lambda partition: source().committed(partition),
        admit=lambda partition, offset: source().admit(partition, offset),
        lost=lambda partition: source().disown(partition),
        receipts=receipts,
    )


def worker_name(settings: Settings) -> str:
    """Who writes a dead letter: client id, host and process."""
    return f"{settings.kafka.client_id}@{socket.gethostname()}:{os.getpid()}"


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    # A closed loop means that the worker has ended: nobody is left to be told.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(work)


def _books(settings: Settings) -> Books:
    return Books(
        Ledger(),
        Sequencer[Answer](settings.flow.max_held_per_stream),
        Flow(settings.flow.max_items, settings.flow.max_bytes),
    )


def segment_decoder(settings: Settings) -> PyAvSegments:
    """What turns segments of video into frames."""
    limits = settings.limits
    return PyAvSegments(
        SegmentLimits(
            max_pixels=limits.max_pixels,
            max_frames=limits.max_segment_frames,
            max_us=limits.max_segment_ms * 1_000,
        ),
        threads=settings.device.segment_threads,
        hardware=settings.device.segment_decoder,
    )


def _segment_thread(settings: Settings, machinery: Machinery) -> SegmentThread:
    return SegmentThread(segment_decoder(settings), machinery.guard)


def _answer_writer(settings: Settings, machinery: Machinery, time: Time) -> AnswerWriter:
    destinations = {
        route.name: Destination(route.output, route.dead_letter, machinery.models[route.name])
        for route in settings.routes
    }
    return AnswerWriter(
        destinations,
        worker=worker_name(settings),
        max_result_bytes=settings.limits.max_result_bytes,
        anchor=time.anchor,
        clock=time.clock,
    )


def _admission(
    settings: Settings, writer: AnswerWriter, time: Time, log: Log, machinery: Machinery
) -> Admission:
    claims = claim_rules(settings.claim_check)
    intakes = {
        route.input: Intake(
            route.name,
            machinery.tables.get(route.name) or bucket_table(route),
            route.sample_every,
            claims,
            Sampling(route.segment_sample_every, route.segment_sample_fps),
        )
        for route in settings.routes
    }
    return Admission(
        intakes,
        settings.limits,
        unit=_order_unit(settings.delivery),
        writer=writer,
        time=time,
        log=log,
        suspects=machinery.suspects,
    )


def _order_unit(delivery: DeliverySettings) -> OrderUnit:
    if delivery.guarantee is Guarantee.EXACTLY_ONCE:
        return OrderUnit.PARTITION
    return OrderUnit.STREAM if delivery.order is Order.STREAM else OrderUnit.NONE


def bucket_table(route: RouteSettings) -> BucketTable:
    """The route's buckets as set; `auto` stands as the most that it can become."""
    return BucketTable(
        [Bucket(b.name, b.max_source_pixels, b.height, b.width, b.ceiling) for b in route.buckets]
    )
