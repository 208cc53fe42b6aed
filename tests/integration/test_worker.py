"""The worker against a broker: every record in, one answer out."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import threading
import time
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from pipeline import metrics as m
from schemas.errors import ConfigError, FatalError, PoisonError, Reason
from schemas.frame import Encoding
from schemas.result import ClosedBy, Status
from schemas.settings import (
    DeliverySettings,
    FlowSettings,
    HttpSettings,
    KafkaSettings,
    LimitSettings,
    Order,
    Settings,
)
from tests.assertions import each_once, in_offset_order
from tests.fakes.engine import MODEL, ScriptedEngine
from tests.fakes.lane import FakeDecoder, FakeModel, a_lane
from tests.integration.kit import (
    DEADLINE_S,
    LARGE,
    SMALL,
    Bench,
    Sent,
    Unique,
    a_bench,
    a_jpeg,
    a_worker,
    envelope,
    fake_machinery,
    kafka_of,
    running,
    session_ms,
    sources,
    until,
)
from workers.assembly import Machinery
from workers.lifecycle import WorkerState
from workers.loading import LoadingStopped
from workers.logs import get_log
from workers.worker import EXIT_CONFIG, EXIT_DONE, EXIT_FAILED, Worker

pytestmark = pytest.mark.broker


async def test_all_three_input_forms_are_answered(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    as_json = json.dumps(
        {
            "v": 1, "stream_id": "door", "seq": 7, "captured_at_us": 5,
            "encoding": "jpeg", "data": base64.b64encode(a_jpeg()).decode(),
        }
    ).encode()  # fmt: skip
    sent = await bench.send(
        Sent(envelope("gate", 3, captured_at_us=4, meta={"site": "north"}), key=b"gate"),
        Sent(as_json, key=None),
        Sent(a_jpeg(LARGE), key=b"yard", headers=(("traceparent", b"00-1"), ("other", b"x"))),
        Sent(a_jpeg(), key=None),
    )

    async with running(a_worker(bench)):
        records = await bench.read(bench.route.output, 4)
        results = await bench.results(4)

    each_once(sources(results), sent)
    by_offset = {r.source.offset: (r, record) for r, record in zip(results, records, strict=True)}
    envelope_result, _ = by_offset[0]
    assert (envelope_result.stream_id, envelope_result.seq) == ("gate", 3)
    assert envelope_result.meta == {"site": "north"}
    assert (envelope_result.width, envelope_result.height) == SMALL
    assert envelope_result.model == FakeModel.info
    assert envelope_result.batch is not None
    assert envelope_result.batch.bucket == "small"
    times = envelope_result.times
    assert times.received_us <= times.batched_us <= times.started_us <= times.finished_us
    assert abs(times.received_us / 1e6 - time.time()) < 60

    json_result, json_record = by_offset[1]
    assert (json_result.stream_id, json_result.seq, json_record.key) == ("door", 7, b"door")

    bare_result, bare_record = by_offset[2]
    assert (bare_result.stream_id, bare_result.seq, bare_record.key) == ("yard", 2, b"yard")
    assert (bare_result.width, bare_result.height) == LARGE
    assert list(bare_record.headers) == [("traceparent", b"00-1")]

    keyless_result, _ = by_offset[3]
    assert keyless_result.stream_id == f"{bench.route.input}-0"
    assert await bench.committed() == 4


POISON: dict[Reason, bytes | None] = {
    Reason.EMPTY_RECORD: None,
    Reason.RECORD_TOO_LARGE: bytes(20_001),
    Reason.BAD_ENVELOPE: b"\x81\xa1v\x01",
    Reason.UNSUPPORTED_VERSION: b"\x81\xa1v\x02",
    Reason.UNSUPPORTED_ENCODING: b"%PDF-1.7\n" + bytes(30),
    Reason.ENCODING_MISMATCH: envelope("cam", 0, encoding=Encoding.PNG),
    Reason.TRUNCATED_HEADER: a_jpeg()[:30],
    Reason.TOO_MANY_PIXELS: a_jpeg((640, 480)),
    Reason.DECODE_FAILED: a_jpeg(grey=1),
    Reason.INFERENCE_FAILED: a_jpeg(grey=2),
}


async def test_every_poison_becomes_a_dead_letter_and_hurts_no_neighbour(
    broker: str, unique: Unique
) -> None:
    limits = LimitSettings(max_record_bytes=20_000, max_pixels=200_000)
    bench = await a_bench(broker, unique, limits=limits)
    lane = a_lane()
    assert isinstance(lane.decoder, FakeDecoder)
    assert isinstance(lane.model, FakeModel)
    lane.decoder.decode = _decode_by_content
    lane.model.before = _refuse_two
    records: list[Sent] = []
    for value in POISON.values():
        records += [Sent(a_jpeg()), Sent(value, headers=(("mine", b"1"),))]
    sent = await bench.send(*records)

    worker = Worker(bench.settings, fake_machinery(bench.settings, lane))
    async with running(worker):
        letters = await bench.dead_letters(len(POISON))
        results = await bench.results(len(POISON))

    each_once(sources(results), sent[0::2])
    in_offset_order(results)
    found: dict[Reason, bytes | None] = {}
    for letter in letters:
        headers = dict(letter.headers)
        assert (headers["mine"], letter.key) == (b"1", b"cam")
        assert headers["fl-source"].decode().startswith(f"{bench.route.input}/0/")
        found[Reason(headers["fl-reason"].decode())] = letter.value
    assert found == POISON
    assert await bench.committed() == len(sent)
    assert worker.metrics.total(m.DEAD_LETTERED) == len(POISON)
    assert worker.metrics.total(m.RECEIVED) == len(sent)
    assert worker.metrics.total(m.ANSWERED) == len(POISON)
    assert worker.metrics.value(m.IN_FLIGHT) == 0


def _grey_of(data: memoryview) -> int:
    return int(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)[0, 0])


def _decode_by_content(items, out):
    errors = []
    for index, item in enumerate(items):
        grey = _grey_of(item.frame.data)
        out[index].fill_(grey)
        bad = PoisonError(Reason.DECODE_FAILED, "bad", stage="decode")
        errors.append(bad if grey == 1 else None)
    return errors


def _refuse_two(levels: list[int]) -> None:
    if 2 in levels:
        raise RuntimeError("two")


async def test_streams_keep_their_order_across_buckets(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique, partitions=2)
    sizes = [SMALL, LARGE, LARGE, SMALL, LARGE]
    sent = await bench.send(
        *(
            Sent(a_jpeg(sizes[n % 5]), key=f"cam-{n % 4}".encode(), partition=n % 2)
            for n in range(200)
        )
    )
    async with running(a_worker(bench)) as worker:
        results = await bench.results(200)
    each_once(sources(results), sent)
    in_offset_order(results)
    assert {r.batch.bucket for r in results if r.batch} == {"small", "large"}
    assert worker.metrics.total(m.BATCHES) <= 200


async def test_late_frames_expire_and_future_ones_are_flagged(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    now_us = time.time_ns() // 1000
    await bench.send(
        Sent(envelope("cam", 0, captured_at_us=now_us - 5_000_000, ttl_ms=1_000)),
        Sent(envelope("cam", 1, captured_at_us=now_us + 60_000_000, ttl_ms=60_000)),
        Sent(envelope("cam", 2, captured_at_us=now_us - 5_000_000, ttl_ms=600_000)),
    )
    async with running(a_worker(bench)) as worker:
        expired, future, in_time = await bench.results(3)
    assert (expired.status, expired.batch, expired.model) == (Status.EXPIRED, None, None)
    assert (future.status, future.clock_skew) == (Status.OK, True)
    assert (in_time.status, in_time.clock_skew) == (Status.OK, False)
    assert worker.metrics.value(m.CLOCK_SKEWS, route="default") == 1


async def test_frames_between_the_samples_are_answered_skipped(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique, sample_every=3)
    await bench.send(*(Sent(envelope("cam", seq)) for seq in range(6)))
    async with running(a_worker(bench)):
        results = await bench.results(6)
    assert [r.status.value for r in results] == ["ok", "skipped", "skipped"] * 2


async def test_a_result_that_is_too_large_becomes_a_dead_letter(
    broker: str, unique: Unique
) -> None:
    limits = LimitSettings(max_result_bytes=1_000)
    bench = await a_bench(broker, unique, limits=limits)
    value = envelope("cam", 0, meta={"note": "n" * 2_000})
    await bench.send(Sent(value), Sent(envelope("cam", 1)))
    async with running(a_worker(bench)):
        (letter,) = await bench.dead_letters(1)
        (result,) = await bench.results(1)
    assert dict(letter.headers)["fl-reason"] == Reason.RESULT_TOO_LARGE.value.encode()
    assert letter.value == value
    assert result.seq == 1


async def test_a_few_credits_are_enough_for_records_larger_than_all_of_them(
    broker: str, unique: Unique
) -> None:
    bench = await a_bench(broker, unique, flow=FlowSettings(max_items=2, max_bytes=100))
    sent = await bench.send(*(Sent(a_jpeg(), key=f"c{n}".encode()) for n in range(12)))
    async with running(a_worker(bench)):
        each_once(sources(await bench.results(12)), sent)


async def test_without_order_answers_leave_as_they_come(broker: str, unique: Unique) -> None:
    delivery = DeliverySettings(order=Order.NONE, commit_interval_ms=100)
    bench = await a_bench(broker, unique, delivery=delivery)
    engines: list[ScriptedEngine] = []
    await bench.send(*(Sent(envelope("cam", seq)) for seq in range(3)))
    async with running(scripted(bench, engines)):
        await until(lambda: len(engines[0].held) == 3)
        first, second, third = engines[0].held
        for item in (third, second, first):
            engines[0].answer(item)
        results = await bench.results(3)
    assert [r.seq for r in results] == [2, 1, 0]


def scripted(bench: Bench, engines: list[ScriptedEngine]) -> Worker:
    def make(deliver, fail):
        engines.append(ScriptedEngine(deliver, fail))
        engines[-1].on_flush = engines[-1].answer
        return engines[-1]

    return Worker(bench.settings, lambda: Machinery(make, {"default": MODEL}))


async def test_what_is_not_answered_is_not_committed(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    engines: list[ScriptedEngine] = []
    await bench.send(*(Sent(envelope("cam", seq), key=b"cam") for seq in range(3)))
    await bench.send(Sent(envelope("other", 0), key=b"other"))
    async with running(scripted(bench, engines)) as worker:
        await until(lambda: len(engines[0].held) == 4)
        first = engines[0].held[0]
        engines[0].answer(*engines[0].held[1:])
        (other,) = await bench.results(1)
        assert other.stream_id == "other", "cam's answers wait for its first"
        assert worker.metrics.value(m.SEQUENCER_HELD) == 2
        assert await bench.committed() in (None, 0)
        engines[0].answer(first)
        in_offset_order(await bench.results(4))
    assert await bench.committed() == 4


async def test_a_fatal_error_ends_the_worker_without_a_commit(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    engines: list[ScriptedEngine] = []
    await bench.send(Sent(envelope("cam", 0)))
    worker = scripted(bench, engines)
    run = asyncio.ensure_future(worker.run())
    await until(lambda: bool(engines) and len(engines[0].held) == 1)
    engines[0].fail(FatalError("the device is gone"))
    assert await run == EXIT_FAILED
    assert worker.state is WorkerState.FAILED
    assert await bench.committed() is None


async def test_a_missing_topic_is_a_config_error_that_names_the_command(
    broker: str, unique: Unique
) -> None:
    bench = await a_bench(broker, unique)
    route = msgspec.structs.replace(bench.route, output=unique("absent"))
    settings = msgspec.structs.replace(bench.settings, routes=[route])
    worker = Worker(settings, fake_machinery(settings))
    with capture_logs() as lines:
        assert await worker.run() == EXIT_CONFIG
    (said,) = [line["error"] for line in lines if line["event"] == "worker_failed"]
    assert route.output in said
    assert "frameloom topics create --config" in said


async def test_an_unreachable_broker_fails_the_worker(unique: Unique) -> None:
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"), http=HttpSettings(port=0)
    )
    assert await Worker(settings, fake_machinery(settings)).run() == EXIT_FAILED


@pytest.mark.parametrize("error", [LoadingStopped(), ConfigError("there is no such model")])
async def test_told_to_stop_while_it_loads_it_says_stopped_last(
    broker: str, unique: Unique, error: Exception
) -> None:
    bench = await a_bench(broker, unique)
    begun, go_on = threading.Event(), threading.Event()

    def load() -> Machinery:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        get_log("frameloom.worker").info("loading_says_more")
        raise error

    worker = Worker(bench.settings, load)
    with capture_logs() as lines:
        run = asyncio.ensure_future(worker.run())
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        worker.request_stop()
        await until(lambda: worker.state is WorkerState.DRAINING)
        assert not worker.in_group
        go_on.set()
        assert await run == EXIT_DONE
    assert "loading_says_more" in [line["event"] for line in lines]
    assert (lines[-1]["event"], lines[-1].get("state")) == ("worker_state", "stopped")


async def test_two_workers_share_the_partitions_and_lose_nothing(
    broker: str, unique: Unique
) -> None:
    bench = await a_bench(broker, unique, partitions=4)
    stop = asyncio.Event()
    sent = []

    async def produce() -> None:
        n = 0
        while not stop.is_set():
            sent.extend(
                await bench.send(
                    *(Sent(a_jpeg(), key=f"cam-{p}".encode(), partition=p) for p in range(4))
                )
            )
            n += 1

    first, second = a_worker(bench), a_worker(bench)
    producing = asyncio.ensure_future(produce())
    async with running(first):
        await until(lambda: first.metrics.total(m.ANSWERED) > 8)
        async with running(second):
            await until(lambda: len(first.assigned) == len(second.assigned) == 2)
            assert not first.assigned & second.assigned
            await until(lambda: second.metrics.total(m.ANSWERED) > 8)
        await until(lambda: len(first.assigned) == 4)
        stop.set()
        await producing
        await until(
            lambda: first.metrics.total(m.ANSWERED) + second.metrics.total(m.ANSWERED) >= len(sent)
        )
        results = await bench.results(len(sent))
    each_once(sources(results), sent)
    in_offset_order(sorted(results, key=lambda r: r.source.partition))
    for worker in (first, second):
        received = worker.metrics.total(m.RECEIVED)
        settled = worker.metrics.total(m.ANSWERED) + worker.metrics.total(m.ABANDONED)
        assert received == settled


async def test_a_drain_under_load_answers_each_record_once_across_two_runs(
    broker: str, unique: Unique
) -> None:
    bench = await a_bench(broker, unique)
    sent = await bench.send(*(Sent(a_jpeg(), key=b"cam-%d" % (n % 5)) for n in range(600)))
    # Held after 80 frames, and no more than 80 inside: there is work left when it is told.
    told = threading.Event()
    lane = a_lane()
    assert isinstance(lane.model, FakeModel)
    model = lane.model
    model.before = lambda _: told.wait(DEADLINE_S) if sum(model.batch_sizes) >= 80 else None
    few = msgspec.structs.replace(bench.settings, flow=FlowSettings(max_items=80))
    first = Worker(few, fake_machinery(few, lane))
    async with running(first):
        await until(lambda: first.metrics.total(m.ANSWERED) > 50)
        first.request_stop()
        await until(lambda: first.state is WorkerState.DRAINING)
        told.set()
    done = int(first.metrics.total(m.ANSWERED))
    assert done < 600, "the drain must come while there is work left"
    assert await bench.committed() == done
    async with running(a_worker(bench)):
        results = await bench.results(600)
    each_once(sources(results), sent)
    in_offset_order(results)


async def test_a_revoked_partition_is_flushed_by_that_reason(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique, partitions=2)
    engines: list[ScriptedEngine] = []
    await bench.send(Sent(envelope("cam", 0)))
    first = scripted(bench, engines)
    async with running(first):
        await until(lambda: len(engines[0].held) == 1)
        async with running(scripted(bench, engines)):
            await until(lambda: len(first.assigned) == 1)
            reason, partitions = engines[0].flushes[0]
            assert reason is ClosedBy.REVOKE
            assert partitions == {(bench.route.input, 0), (bench.route.input, 1)}
            assert await bench.committed() == 1, "committed before it was given back"


async def test_a_worker_whose_intake_is_closed_stays_in_the_group(
    broker: str, unique: Unique
) -> None:
    kafka = msgspec.structs.replace(kafka_of(session_ms()), max_poll_interval_ms=60_000)
    bench = await a_bench(broker, unique, kafka=kafka, flow=FlowSettings(max_items=1))
    engines: list[ScriptedEngine] = []
    await bench.send(Sent(envelope("cam", 0)), Sent(envelope("cam", 1)))
    async with running(scripted(bench, engines)) as worker:
        await until(lambda: len(engines[0].held) == 1)
        assert worker._parts is not None
        consumer: Any = worker._parts.source._consumer
        # The library's own time since the last poll: it begins anew again and again.
        for _ in range(3):
            idle_s = consumer._subscription.fetcher_idle_time
            await until(lambda now=idle_s: consumer._subscription.fetcher_idle_time < now)
        assert len(engines[0].held) == 1
        assert worker.metrics.value(m.REBALANCES) == 1
        engines[0].answer()
        await until(lambda: len(engines[0].held) == 1)
        engines[0].answer()
        await bench.results(2)


async def test_health_and_metrics_are_served(broker: str, unique: Unique) -> None:
    bench = await a_bench(broker, unique)
    await bench.send(Sent(a_jpeg()))
    worker = a_worker(bench)
    async with running(worker):
        await bench.results(1)
        status, body = await _get(worker, "/healthz")
        assert (status, json.loads(body)["state"]) == (200, "running")
        assert (await _get(worker, "/readyz"))[0] == 200
        assert (await _get(worker, "/elsewhere"))[0] == 404
        status, body = await _get(worker, "/metrics")
        names = {family.name for family in text_string_to_metric_families(body)}
        assert {metric.name for metric in m.TABLE} <= names
        assert 'frameloom_answered_total{route="default",status="ok"} 1.0' in body


async def _get(worker: Worker, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        assert worker.http_port is not None
        client = http.client.HTTPConnection("127.0.0.1", worker.http_port, timeout=DEADLINE_S)
        client.request("GET", path)
        response = client.getresponse()
        body = response.read().decode()
        client.close()
        return response.status, body

    return await asyncio.to_thread(ask)
