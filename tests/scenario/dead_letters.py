"""A dead-letter topic that is not there."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.error
import urllib.request

from tests.scenario.feed import feed
from tests.scenario.oracle import DEADLINE_S, Oracle, Verdict
from tests.scenario.stage import Plan, Rig, Stage
from tests.scenario.worker_process import WorkerProcess
from workers.kafka_clients import (
    RecordMetadata,
    create_topics,
    make_admin,
    make_consumer,
    start_client,
    stop_client,
)

BLOCKED = re.compile(
    r"^frameloom_answers_blocked_seconds\{topic=\"([^\"]+)\"\} ([0-9.e+]+)$", re.MULTILINE
)
POISON = b"no frame"


async def missing_at_start(rig: Rig) -> Verdict:
    """A worker without its dead-letter topic refuses to start and names it; nothing is taken in
    until it is there."""
    stage = await Stage.build(rig, Plan(dead_letters=False))
    oracle = Oracle(stage)
    async with feed(stage) as feeding:
        await feeding.send(100)
        await feeding.put(b"cam-0", POISON)
    async with stage.worker(assigned=False) as worker:
        assert await worker.ended() == 2
        (failure,) = [line for line in worker.events() if line["event"] == "worker_failed"]
        assert stage.route.dead_letter in str(failure["error"])
    assert await oracle.look()
    assert oracle.answered == 0
    await create_topics(stage.direct, [stage.dead_letter_topic()])
    oracle.watched.add(stage.route.dead_letter)
    async with stage.worker() as worker:
        await oracle.until_all()
        await worker.drained()
    return await oracle.verdict(allowed=0, dead_letters=1)


async def deleted_later(rig: Rig, *, away_s: float) -> Verdict:
    """The dead-letter topic is deleted under a running worker. Results go on, the offsets stop at
    the dead letter, a gauge and `/readyz` say so; once the topic is back, all goes on by itself."""
    stage = await Stage.build(rig, Plan())
    oracle, topic = Oracle(stage), stage.route.dead_letter
    async with stage.worker() as worker:
        await worker.until_said("http_listening")
        async with feed(stage, per_second=50.0) as feeding:
            await feeding.put(b"cam-0", POISON)
            await oracle.until(lambda: oracle.reasons == 1, "the first dead letter")
            await oracle.until_more(50)
            await _delete(stage, topic)
            oracle.watched.discard(topic)
            poison = await feeding.put(b"cam-0", POISON)
            assert poison is not None
            at = await poison
            await _until_blocked(worker, topic)
            assert await _status(worker, "/readyz") == 503
            assert await _status(worker, "/healthz") == 200
            await asyncio.sleep(away_s)
            await oracle.until_more(50)
            await _until_committed(oracle, at)
            await oracle.until_more(50)
            after = await oracle.committed()
            assert after[at.partition] == at.offset, "committed past what nobody has an answer to"
            await create_topics(stage.direct, [stage.dead_letter_topic()])
            back_at = time.monotonic()
            oracle.forget_positions(topic)
            oracle.watched.add(topic)
            await oracle.until(lambda: oracle.reasons == 2, "the second dead letter")
            recovery_s = time.monotonic() - back_at
        await oracle.until_all()
        await oracle.until_committed()
        async with asyncio.timeout(DEADLINE_S):
            while await _status(worker, "/readyz") != 200:
                await asyncio.sleep(0.2)
        await worker.drained()
    # What the broker took and did not acknowledge before it deleted the topic is gone with it.
    return await oracle.verdict(allowed=0, dead_letters=2, recovery_s=recovery_s)


async def dead_letter_values(stage: Stage) -> list[bytes]:
    """What lies on the dead-letter topic: each record's value."""
    consumer = make_consumer(
        stage.direct, stage.route.dead_letter, group=False, auto_offset_reset="earliest"
    )
    await start_client(consumer, stage.direct)
    try:
        partitions = sorted(consumer.assignment())
        async with asyncio.timeout(DEADLINE_S):
            ends = await consumer.end_offsets(partitions)
            values: list[bytes] = []
            while len(values) < sum(ends.values()):
                found = await consumer.getmany(*partitions, timeout_ms=500)
                values += [r.value or b"" for records in found.values() for r in records]
        return values
    finally:
        await stop_client(consumer)


async def _delete(stage: Stage, topic: str) -> None:
    admin = make_admin(stage.direct)
    await start_client(admin, stage.direct)
    try:
        await admin.delete_topics([topic])
        async with asyncio.timeout(DEADLINE_S):
            while topic in await admin.list_topics():
                await asyncio.sleep(0.1)
    finally:
        await stop_client(admin)


async def _until_committed(oracle: Oracle, at: RecordMetadata) -> None:
    """Until the group's offset of this partition has come there, or beyond."""
    async with asyncio.timeout(DEADLINE_S):
        while (await oracle.committed()).get(at.partition, 0) < at.offset:
            await asyncio.sleep(0.1)


async def _until_blocked(worker: WorkerProcess, topic: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            _, body = await asyncio.to_thread(_get, worker, "/metrics")
            if float(dict(BLOCKED.findall(body))[topic]) > 0:
                return
            await asyncio.sleep(0.5)


async def _status(worker: WorkerProcess, path: str) -> int:
    return (await asyncio.to_thread(_get, worker, path))[0]


def _get(worker: WorkerProcess, path: str) -> tuple[int, str]:
    (said,) = [line for line in worker.events() if line["event"] == "http_listening"]
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{said['port']}{path}", timeout=DEADLINE_S
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
